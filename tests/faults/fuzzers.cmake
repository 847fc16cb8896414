# libFuzzer's programs, one per parser: fuzz_<name>.cpp. clang compiles the parsers for libFuzzer, with the sanitizers
# for addresses and undefined behaviour, and with counters of coverage. All else is linked as in the release. Only
# `./dev test --all` builds them (target fuzzers). The short set calls the same functions without instrumentation
# (parsers_test.cpp).
find_program(SYNCOPATE_FUZZ_COMPILER NAMES clang++-14 clang++-19)

# These sources are compiled so, and each parser's coverage counts their lines.
set(fuzzed_toml workers/config/toml.cpp)
set(fuzzed_overrides experiments/sections/variation.cpp workers/config/key_path.cpp)
set(fuzzed_experiment workers/config/settings.cpp)
file(GLOB sections RELATIVE ${CMAKE_SOURCE_DIR} CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/experiments/sections/*.cpp)
list(REMOVE_ITEM sections ${fuzzed_overrides})
list(APPEND fuzzed_experiment ${sections})
set(fuzzed_trace workers/time/trace.cpp workers/base/files.cpp)
set(fuzzed_histogram workers/time/distributions.cpp workers/time/trace.cpp)
set(fuzzed_npy workers/base/arrays.cpp workers/data/npy_dataset.cpp workers/data/text_dataset.cpp)
set(fuzzed_tokens workers/data/token_stream.cpp)
set(fuzzed_idx workers/data/images.cpp workers/base/files.cpp)
set(fuzzed_cifar workers/data/images.cpp)
set(fuzzed_records results/summary.cpp results/found_runs.cpp results/claims.cpp)
set(fuzzed_results results/found_runs.cpp results/run_directory.cpp results/lease.cpp results/result_table.cpp)
set(fuzzed_parsers toml overrides experiment trace histogram npy tokens idx cifar records results)

set(fuzz_folder ${CMAKE_BINARY_DIR}/fuzz)
set(fuzz_flags -std=c++20 -O1 -g1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all
  -DSYNCOPATE_SOURCE_DIR="${CMAKE_SOURCE_DIR}" -I${CMAKE_SOURCE_DIR})
foreach(folder IN LISTS MPI_CXX_INCLUDE_DIRS)
  list(APPEND fuzz_flags -isystem ${folder})
endforeach()
set(fuzz_instruments -fsanitize=fuzzer-no-link -fprofile-instr-generate -fcoverage-mapping)

# An object of the source, in `objects`.
function(fuzz_object source name)
  set(object ${fuzz_folder}/${name}.o)
  add_custom_command(OUTPUT ${object} DEPFILE ${object}.d DEPENDS ${CMAKE_SOURCE_DIR}/${source}
    COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} ${SYNCOPATE_FUZZ_COMPILER} ${fuzz_flags} ${ARGN} -MD -MF ${object}.d
      -c ${CMAKE_SOURCE_DIR}/${source} -o ${object}
    COMMENT "Compiling ${source} for fuzzers" VERBATIM)
  set(objects ${objects} ${object} PARENT_SCOPE)
endfunction()

if(SYNCOPATE_FUZZ_COMPILER)
  set(instrumented)
  foreach(parser IN LISTS fuzzed_parsers)
    list(APPEND instrumented ${fuzzed_${parser}})
  endforeach()
  list(REMOVE_DUPLICATES instrumented)
  set(objects)
  foreach(source IN LISTS instrumented)
    string(REPLACE "/" "." name ${source})
    set(own)
    # toml++ says of letters outside of quotes that they cannot be met, and goes on where they are.
    if(source MATCHES "config/toml.cpp")
      set(own -fno-sanitize=unreachable)
    endif()
    fuzz_object(${source} ${name} ${fuzz_instruments} ${own})
  endforeach()
  fuzz_object(tests/faults/fuzzing.cpp fuzzing)
  set(archive ${fuzz_folder}/libparsers.a)
  file(MAKE_DIRECTORY ${fuzz_folder})
  add_custom_command(OUTPUT ${archive} DEPENDS ${objects}
    COMMAND ${CMAKE_COMMAND} -E rm -f ${archive} COMMAND ${CMAKE_AR} qcs ${archive} ${objects} VERBATIM)

  # If two archives have the same function, lld takes the first one's, so the parsers' archive comes first.
  set(fuzz_libraries syncopate_experiments syncopate_models syncopate_algorithms syncopate_rows syncopate_results
    syncopate_core syncopate_config syncopate_base)
  set(fuzz_archives)
  foreach(library IN LISTS fuzz_libraries)
    list(APPEND fuzz_archives $<TARGET_FILE:${library}>)
  endforeach()
  set(fuzz_programs)
  foreach(parser IN LISTS fuzzed_parsers)
    set(objects)
    fuzz_object(tests/faults/fuzz_${parser}.cpp fuzz_${parser} ${fuzz_instruments})
    fuzz_object(tests/faults/fuzz_entry.cpp entry_${parser} -DSYNCOPATE_FUZZED=fuzz_${parser})
    set(program ${fuzz_folder}/fuzz_${parser})
    add_custom_command(OUTPUT ${program} DEPENDS ${objects} ${archive} ${fuzz_libraries}
      COMMAND ${SYNCOPATE_FUZZ_COMPILER} -fuse-ld=lld -fsanitize=fuzzer,address,undefined -fprofile-instr-generate ${objects}
        -Wl,--start-group ${archive} ${fuzz_archives} -Wl,--end-group ${MPI_CXX_LIBRARIES} $<TARGET_FILE:Boost::context>
        $<TARGET_FILE:fmt::fmt> ${ZLIB_LIBRARIES} -ldl -lpthread -o ${program}
      COMMENT "Linking ${program}" VERBATIM)
    list(APPEND fuzz_programs ${program})
  endforeach()
  add_custom_target(fuzzers DEPENDS ${fuzz_programs})
else()
  add_custom_target(fuzzers)  # faults/fuzz.py says what is missing
endif()

# Ten million inputs in all, most for those that take microseconds. All of it belongs to the long set.
set(inputs_of_toml 3000000)
set(inputs_of_overrides 300000)
set(inputs_of_experiment 100000)
set(inputs_of_trace 1200000)
set(inputs_of_histogram 3000000)
set(inputs_of_npy 800000)
set(inputs_of_tokens 300000)
set(inputs_of_idx 600000)
set(inputs_of_cifar 250000)
set(inputs_of_records 700000)
set(inputs_of_results 50000)
foreach(parser IN LISTS fuzzed_parsers)
  add_test(NAME fuzz_${parser}_slow_test COMMAND ${plot_python} -B ${CMAKE_CURRENT_SOURCE_DIR}/faults/fuzz.py ${parser}
    ${inputs_of_${parser}} ${fuzzed_${parser}})
  set_tests_properties(fuzz_${parser}_slow_test PROPERTIES LABELS slow PROCESSORS 2 TIMEOUT 7200
    ENVIRONMENT "SYNCOPATE_FUZZERS=${fuzz_folder}")
endforeach()
