// What the program computes, as a number: part of every run's hash, so that results which it would not give any more
// are not taken for its own.
#pragma once

namespace syncopate {

// Raise it by one with each change that alters what some run computes: its times, its models, its accounts. A change of
// files' formats is results_schema_version's. tests/golden/results_by_version/ holds the results of each version; the
// test that compares with it says when. Name the runs that changed in experiments/sections/results_changes.cpp: all
// others keep their hash.
inline constexpr int results_version = 7;

// From this version on, a run's hash has the version of the newest change that altered this run.
inline constexpr int first_selective_results_version = 5;

}  // namespace syncopate
