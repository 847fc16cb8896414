// As many workers with a fiber each as a test takes where it wants more than have guard pages (1,024).
#pragma once

namespace syncopate {

#if defined(__SANITIZE_THREAD__)
// ThreadSanitizer takes a fiber for a thread: at most 8,128 of them, a megabyte each.
inline constexpr int many_fibers = 2'000;
#else
inline constexpr int many_fibers = 20'000;
#endif

}  // namespace syncopate
