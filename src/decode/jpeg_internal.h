#pragma once

// libjpeg declares its internals in a header that may be read only once, and relies on others.
// clang-format off
#include <cstdio>
#include <jpeglib.h>
extern "C" {
#include <jpegint.h>
}
// clang-format on
