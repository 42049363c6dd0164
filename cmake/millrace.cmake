# millrace_library(base SOURCES a.cc b.cc DEPS net PRIVATE lib) -> static library millrace_base
#   OFF_DATA_PATH: no sample passes through it, so it is compiled by -O1 (by -O0 with a sanitizer), in two thirds of the time
#
# millrace_test(base SOURCES a_test.cc DEPS ... [SLOW])         -> one program base_test, each case a ctest
#
# millrace_embed(millrace_job JobTemplate templates a.sh b.json) -> the texts of files as a part of a target
#
# millrace_fuzz(shard NAME tar_fuzz SOURCES tar_fuzz.cc)        -> libFuzzer program (preset asan only)

add_library(millrace_flags INTERFACE)
target_include_directories(millrace_flags INTERFACE ${CMAKE_SOURCE_DIR}/src)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(shadow -Wshadow=local)
endif()
# Designated initialisers leave the defaults to the struct, hence no warning of missing ones.
target_compile_options(millrace_flags INTERFACE -Wall -Wextra ${shadow} -Wnon-virtual-dtor -Wimplicit-fallthrough
  -Wno-missing-field-initializers)
if(MILLRACE_SANITIZE)
  target_compile_options(millrace_flags INTERFACE -fsanitize=${MILLRACE_SANITIZE} -fno-omit-frame-pointer -g1)
  target_link_options(millrace_flags INTERFACE -fsanitize=${MILLRACE_SANITIZE})
  if(MILLRACE_SANITIZE MATCHES "undefined")
    target_compile_options(millrace_flags INTERFACE -fno-sanitize-recover=undefined)
  endif()
endif()
# Headers that most units include, parsed once. The presets that compile file by file do without, and so show missing includes.
# A compiler takes them only for code of the same kind: programs are compiled as libraries are, and each level of
# optimisation has its own.
function(millrace_add_precompiled name)
  add_library(${name} STATIC ${CMAKE_SOURCE_DIR}/cmake/precompiled.cc)
  target_compile_options(${name} PRIVATE ${ARGN})
  target_link_libraries(${name} PRIVATE millrace_flags absl::status absl::statusor absl::strings absl::time
    absl::any_invocable absl::flat_hash_map Threads::Threads fmt::fmt nlohmann_json::nlohmann_json)
  target_precompile_headers(${name} PRIVATE ${CMAKE_SOURCE_DIR}/cmake/precompiled.h)
endfunction()

if(MILLRACE_PRECOMPILE)
  millrace_add_precompiled(millrace_precompiled)
  if(MILLRACE_SANITIZE)
    millrace_add_precompiled(millrace_precompiled_quick -O0)
  endif()
endif()

function(millrace_precompile target)
  if(MILLRACE_PRECOMPILE)
    target_compile_options(${target} PRIVATE -fPIC)
    target_link_libraries(${target} PRIVATE fmt::fmt)
    cmake_parse_arguments(ARG "QUICK" "" "" ${ARGN})
    if(ARG_QUICK AND MILLRACE_SANITIZE)
      target_precompile_headers(${target} REUSE_FROM millrace_precompiled_quick)
    else()
      target_precompile_headers(${target} REUSE_FROM millrace_precompiled)
    endif()
  endif()
endfunction()

add_custom_target(fast_tests)  # all that `ctest -L fast` runs

# Compiles what no sample passes through, and tests, in less time. The level comes after the flags of the build type, so it
# wins; builds without a type choose their own. A sanitizer triples the work of the optimiser, so its presets do without.
function(millrace_compile_quickly target)
  if(MILLRACE_SANITIZE)
    target_compile_options(${target} PRIVATE -O0)
  else()
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
  millrace_precompile(${target} QUICK)
endfunction()

function(millrace_library name)
  cmake_parse_arguments(ARG "OFF_DATA_PATH" "" "SOURCES;DEPS;PRIVATE" ${ARGN})
  add_library(millrace_${name} STATIC ${ARG_SOURCES})
  if(MILLRACE_FUZZ)
    target_compile_options(millrace_${name} PRIVATE -fsanitize=fuzzer-no-link)  # the tests do without it, and run faster
  endif()
  target_link_libraries(millrace_${name} PUBLIC millrace_flags absl::status absl::statusor absl::strings absl::time
    absl::any_invocable absl::flat_hash_map Threads::Threads PRIVATE fmt::fmt ${ARG_PRIVATE})
  foreach(dep ${ARG_DEPS})
    target_link_libraries(millrace_${name} PUBLIC millrace_${dep})
  endforeach()
  if(ARG_OFF_DATA_PATH)
    millrace_compile_quickly(millrace_${name})
  else()
    millrace_precompile(millrace_${name})
  endif()
endfunction()

set(test_shards 4)  # of each test program of a sanitizer preset: processes that share its cases

function(millrace_test name)
  if(NOT MILLRACE_TESTS)
    return()
  endif()
  # Modules without threads have nothing to show to the thread sanitizer.
  if(MILLRACE_SANITIZE MATCHES "thread" AND name MATCHES "^(shard|plan|decode|volume)$")
    return()
  endif()
  cmake_parse_arguments(ARG "SLOW" "" "SOURCES;DEPS;PRIVATE" ${ARGN})
  set(target ${name}_test)
  set(label fast)
  if(ARG_SLOW)
    set(target ${name}_slow_test)
    set(label slow)
  endif()
  add_executable(${target} ${ARG_SOURCES})
  target_link_libraries(${target} PRIVATE millrace_${name} GTest::gmock GTest::gtest_main ${ARG_PRIVATE})
  foreach(dep ${ARG_DEPS})
    target_link_libraries(${target} PRIVATE millrace_${dep})
  endforeach()
  millrace_compile_quickly(${target})
  if(NOT ARG_SLOW)
    add_dependencies(fast_tests ${target})
  endif()
  if(MILLRACE_SANITIZE MATCHES "thread")
    target_sources(${target} PRIVATE ${CMAKE_SOURCE_DIR}/tests/toolchain/tsan_suppressions.cc)
  endif()
  set(environment "MILLRACE_SOURCE_DIR=${CMAKE_SOURCE_DIR};MILLRACE_BINARY_DIR=${CMAKE_BINARY_DIR}")
  if(MILLRACE_SANITIZE)
    # A sanitized program takes longer to start than most cases take to run, so a process runs many of them.
    foreach(index RANGE 1 ${test_shards})
      math(EXPR zero_based "${index} - 1")
      set(shard ${target}.${index}_of_${test_shards})
      add_test(NAME ${shard} COMMAND ${target})
      set_tests_properties(${shard} PROPERTIES LABELS ${label} TIMEOUT 1800
        ENVIRONMENT "${environment};GTEST_TOTAL_SHARDS=${test_shards};GTEST_SHARD_INDEX=${zero_based}")
    endforeach()
    return()
  endif()
  gtest_discover_tests(${target} TEST_PREFIX ${name}. DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 300
    PROPERTIES LABELS ${label} TIMEOUT 900 ENVIRONMENT "${environment}")
endfunction()

function(millrace_fuzz module)
  if(NOT MILLRACE_FUZZ)
    return()
  endif()
  cmake_parse_arguments(ARG "" "NAME" "SOURCES" ${ARGN})
  add_executable(${ARG_NAME} ${ARG_SOURCES})
  target_link_libraries(${ARG_NAME} PRIVATE millrace_${module})
  target_link_options(${ARG_NAME} PRIVATE -fsanitize=fuzzer)
  set_property(GLOBAL APPEND PROPERTY MILLRACE_FUZZERS ${ARG_NAME})
endfunction()

# Files become a part of a target, as kNAMENames and kNAMETexts in namespace millrace. Both lists end with nullptr.
function(millrace_embed target name folder)
  set(names "")
  set(texts "")
  foreach(file ${ARGN})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${folder}/${file})
    file(READ ${folder}/${file} text)
    string(APPEND names "    \"${file}\",\n")
    string(APPEND texts "    R\"embedded(${text})embedded\",\n")
  endforeach()
  file(CONFIGURE OUTPUT embedded_${name}.cc @ONLY CONTENT
    "namespace millrace {\nextern const char* const k@name@Names[];\nextern const char* const k@name@Texts[];\nconst char* const k@name@Names[] = {\n@names@    nullptr};\nconst char* const k@name@Texts[] = {\n@texts@    nullptr};\n}  // namespace millrace\n")
  target_sources(${target} PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/embedded_${name}.cc)
endfunction()
