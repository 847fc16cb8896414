// How much memory this process can still take.
#pragma once

#include <cstdint>
#include <filesystem>

namespace syncopate {

// The least of what the machine has free (with swap space), what this process's control groups leave, and what a limit
// on the address space (ulimit -v) or on data (ulimit -d) leaves. As large as possible where nothing is known.
std::int64_t free_memory_bytes();

// What the control group of this process and those above it leave, of version 1 or 2: a job of Slurm's, a service of
// systemd's or a container has its limit in any of them. What files take in memory counts as free where it can go.
// `root`: where proc and sys lie, other than "/" in tests.
std::int64_t left_by_control_groups(const std::filesystem::path& root = "/");

}  // namespace syncopate
