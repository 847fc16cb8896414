"use strict";
// Marks a table that is wider than its box, so that page.css (.more) can say that it goes on to the right.
{
  const check = box => box.classList.toggle("more", box.scrollWidth > box.clientWidth + 1);
  const watch = new ResizeObserver(entries => { for (const entry of entries) check(entry.target.closest(".scroll")); });
  for (const box of document.querySelectorAll(".scroll")) {
    watch.observe(box);
    watch.observe(box.firstElementChild);
    check(box);
  }
}
