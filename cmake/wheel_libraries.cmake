# In a wheel (MILLRACE_WHEEL), all that is C++ is linked in, libstdc++ too, so that systems of an older GCC run it: no symbol of GLIBCXX is left.
# The archives are those of scripts/wheel-libraries. Their headers are Debian's, hence objects come from the cache of the compiler as ever.
# Exceptions are unwound by the system's libgcc_s: the one of GCC 12 needs glibc 2.35, and a process has one.
if(CMAKE_CROSSCOMPILING)
  set(suffix -arm64)
endif()
set(MILLRACE_WHEEL_LIBRARIES ${CMAKE_SOURCE_DIR}/build/wheel-libraries${suffix}/lib)

get_directory_property(imported IMPORTED_TARGETS)
foreach(target IN LISTS imported)
  get_target_property(kind ${target} TYPE)
  if(NOT kind STREQUAL "SHARED_LIBRARY" OR NOT target MATCHES "^(absl|fmt|spdlog)::(.*)$")
    continue()
  endif()
  string(REGEX REPLACE "^absl::" "absl_" name ${target})
  string(REGEX REPLACE "^.*::" "" name ${name})
  # An archive has no name of its own that would replace its path when something links it.
  set_target_properties(${target} PROPERTIES
    IMPORTED_LOCATION_NONE ${MILLRACE_WHEEL_LIBRARIES}/lib${name}.a
    IMPORTED_SONAME_NONE "")
endforeach()
# Debian's archive of pugixml is position-independent.
set_target_properties(pugixml::pugixml PROPERTIES INTERFACE_LINK_LIBRARIES pugixml::static)
set_target_properties(PkgConfig::HWY PROPERTIES INTERFACE_LINK_LIBRARIES ${MILLRACE_WHEEL_LIBRARIES}/libhwy.a)
# Code that nobody calls is left out: arc4random() of std::random_device, for example, needs glibc 2.36.
add_link_options(-static-libstdc++ -Wl,--exclude-libs,ALL -Wl,--gc-sections)
# auditwheel sets the path of the libraries. One of the build would leave its length in the file, which differs between checkouts.
# The linker still has to see our libLerc, since Debian's would bring in all of libstdc++ that it needs.
set(CMAKE_SKIP_RPATH ON)
add_link_options(-Wl,-rpath-link,${MILLRACE_WHEEL_LIBRARIES})
# A sysroot has Debian's, too, and its folder is in flags that come before.
string(PREPEND CMAKE_EXE_LINKER_FLAGS "-Wl,-rpath-link,${MILLRACE_WHEEL_LIBRARIES} ")
