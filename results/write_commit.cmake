# Run by every build: writes the commit into OUTPUT. The file changes only if the commit or the dirty flag does, so that
# a new commit recompiles only one small file. The flag is true if the program's sources differ from the commit. Other
# files (pages, experiment files, results of runs, tests) do not change what the program computes. New source files
# count, since they are compiled before they are committed.
cmake_minimum_required(VERSION 3.22)
set(commit "unknown")
set(dirty "")
execute_process(COMMAND git rev-parse HEAD WORKING_DIRECTORY ${SOURCE_DIR} OUTPUT_VARIABLE found
  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
if(status EQUAL 0)
  set(commit "${found}")
  set(sources CMakeLists.txt)
  foreach(folder IN ITEMS algorithms experiments results workers)
    foreach(kind IN ITEMS *.cpp *.hpp *.in *.cmake *CMakeLists.txt)
      list(APPEND sources ${folder}/${kind})
    endforeach()
  endforeach()
  execute_process(COMMAND git status --porcelain --untracked-files=all -- ${sources} workers/time/data/*.csv
    WORKING_DIRECTORY ${SOURCE_DIR} OUTPUT_VARIABLE changes ERROR_QUIET)
  if(changes STREQUAL "")
    set(dirty "false")
  else()
    set(dirty "true")
  endif()
endif()
set(content "#define SYNCOPATE_COMMIT \"${commit}\"\n#define SYNCOPATE_DIRTY \"${dirty}\"\n")
set(before "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} before)
endif()
if(NOT content STREQUAL before)
  file(WRITE ${OUTPUT} "${content}")
endif()
