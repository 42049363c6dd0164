# Toolchain of scripts/arm64: Debian's cross compiler, and the libraries of a sysroot of arm64 packages. MILLRACE_SYSROOT names it.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES MILLRACE_SYSROOT)
set(CMAKE_SYSROOT ${MILLRACE_SYSROOT})
set(CMAKE_FIND_ROOT_PATH ${MILLRACE_SYSROOT})
# Programs are those of the machine that compiles; all else is of the sysroot.
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${MILLRACE_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR} ${MILLRACE_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${MILLRACE_SYSROOT}/usr/share/pkgconfig)
# Libraries that a library needs lie here, too.
set(CMAKE_EXE_LINKER_FLAGS_INIT -Wl,-rpath-link,${MILLRACE_SYSROOT}/usr/lib/aarch64-linux-gnu:${MILLRACE_SYSROOT}/lib/aarch64-linux-gnu)
