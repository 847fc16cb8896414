# Finds LibTorch without its own CMake package, which refuses PyTorch's CUDA wheels on machines without a CUDA toolkit.
# Only the CPU libraries are used: libtorch_cpu and libc10.
#
# Looks in each prefix of CMAKE_PREFIX_PATH, then in the system's folders. A prefix may be an unpacked LibTorch, or a
# Python's torch.utils.cmake_prefix_path (its folder share/cmake). Sets TORCH_CPU_LIBRARY, TORCH_C10_LIBRARY,
# TORCH_INCLUDE_DIRS and TORCH_VERSION.
string(REPLACE ":" ";" torch_prefixes "$ENV{CMAKE_PREFIX_PATH}")
set(torch_hints)
foreach(prefix IN LISTS CMAKE_PREFIX_PATH torch_prefixes)
  get_filename_component(above ${prefix}/../.. ABSOLUTE)
  list(APPEND torch_hints ${prefix} ${above})
endforeach()
find_library(TORCH_CPU_LIBRARY torch_cpu HINTS ${torch_hints} PATH_SUFFIXES lib)
find_library(TORCH_C10_LIBRARY c10 HINTS ${torch_hints} PATH_SUFFIXES lib)
find_path(TORCH_INCLUDE_DIR torch/csrc/api/include/torch/version.h HINTS ${torch_hints} PATH_SUFFIXES include)
if(NOT TORCH_CPU_LIBRARY OR NOT TORCH_C10_LIBRARY OR NOT TORCH_INCLUDE_DIR)
  message(FATAL_ERROR "LibTorch was not found: libtorch_cpu, libc10 and torch/csrc/api/include/torch/version.h must be in "
    "lib and include of a prefix. Install libtorch-dev, or name a Python that has PyTorch: ./dev --torch PYTHON build")
endif()
set(TORCH_INCLUDE_DIRS ${TORCH_INCLUDE_DIR} ${TORCH_INCLUDE_DIR}/torch/csrc/api/include)

# PyTorch's wheels include the headers of their own fmt version, without its library. Therefore a folder that contains
# only a link to the headers of the linked fmt comes first in the include path.
find_package(fmt REQUIRED)
get_target_property(fmt_include_dir fmt::fmt INTERFACE_INCLUDE_DIRECTORIES)
if(EXISTS ${TORCH_INCLUDE_DIR}/fmt AND NOT TORCH_INCLUDE_DIR STREQUAL fmt_include_dir)
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/linked_fmt)
  file(CREATE_LINK ${fmt_include_dir}/fmt ${CMAKE_BINARY_DIR}/linked_fmt/fmt SYMBOLIC)
  list(PREPEND TORCH_INCLUDE_DIRS ${CMAKE_BINARY_DIR}/linked_fmt)
endif()

set(TORCH_VERSION)
foreach(header torch/csrc/api/include/torch/version.h torch/headeronly/version.h)  # the second from about 2.9 on
  if(EXISTS ${TORCH_INCLUDE_DIR}/${header})
    foreach(part MAJOR MINOR PATCH)
      file(STRINGS ${TORCH_INCLUDE_DIR}/${header} line REGEX "#define TORCH_VERSION_${part} ")
      string(REGEX REPLACE ".* " "" number "${line}")
      if(number MATCHES "^[0-9]+$")
        list(APPEND TORCH_VERSION ${number})
      endif()
    endforeach()
  endif()
endforeach()
list(JOIN TORCH_VERSION "." TORCH_VERSION)
if(TORCH_VERSION VERSION_LESS 1.13)
  message(FATAL_ERROR "LibTorch ${TORCH_VERSION} at ${TORCH_CPU_LIBRARY} is too old; 1.13 or later is needed")
endif()

# LibTorch cannot be linked if it was built without the C++11 ABI or if other libraries that it needs are missing.
include(CheckCXXSourceCompiles)
set(CMAKE_REQUIRED_INCLUDES ${TORCH_INCLUDE_DIRS})
set(CMAKE_REQUIRED_LIBRARIES ${TORCH_CPU_LIBRARY} ${TORCH_C10_LIBRARY})
set(CMAKE_REQUIRED_FLAGS -std=c++20)
check_cxx_source_compiles("#include <c10/util/Exception.h>
#include <string>
int main() { return static_cast<int>(c10::Error(c10::SourceLocation(), std::string()).msg().size()); }" TORCH_CAN_BE_LINKED)
unset(CMAKE_REQUIRED_INCLUDES)
unset(CMAKE_REQUIRED_LIBRARIES)
unset(CMAKE_REQUIRED_FLAGS)
if(NOT TORCH_CAN_BE_LINKED)
  message(FATAL_ERROR "LibTorch ${TORCH_VERSION} at ${TORCH_CPU_LIBRARY} cannot be linked: it was built for the C++ ABI from "
    "before C++11 (like pip's PyTorch before 2.7), or libraries that it needs are missing (pip installs the CUDA libraries as "
    "separate packages). The linker's output is in ${CMAKE_BINARY_DIR}/CMakeFiles.")
endif()
message(STATUS "Found LibTorch ${TORCH_VERSION}: ${TORCH_CPU_LIBRARY}")
