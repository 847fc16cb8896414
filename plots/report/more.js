"use strict";
// A table that goes on beyond its right edge says so (page.css, .more).
{
  const check = box => box.classList.toggle("more", box.scrollWidth > box.clientWidth + 1);
  const watch = new ResizeObserver(entries => { for (const entry of entries) check(entry.target.closest(".scroll")); });
  for (const box of document.querySelectorAll(".scroll")) {
    watch.observe(box);
    watch.observe(box.firstElementChild);
    check(box);
  }
}
