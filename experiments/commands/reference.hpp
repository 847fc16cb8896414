// Pages that are written from the tables that read and list experiment files: experiments/reference.md, and the table
// of methods in algorithms/README.md.
#pragma once

#include <filesystem>
#include <string>

namespace syncopate {

inline constexpr const char* command_that_writes = "./dev list --write-pages";

// All keys of an experiment file, as a page.
std::string reference_page();

// The page of methods, its table between two marks replaced by the registry's. Throws std::runtime_error without them.
std::string with_table_of_methods(std::string page);

// Writes both in a checkout. Throws std::runtime_error where one of them is not there or cannot be written.
void write_pages(const std::filesystem::path& checkout);

}  // namespace syncopate
