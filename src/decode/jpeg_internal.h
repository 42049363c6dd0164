#pragma once

// What libjpeg keeps inside, from a header of its own that may be read only once, and relies on others.
// clang-format off
#include <cstdio>
#include <jpeglib.h>
extern "C" {
#include <jpegint.h>
}
// clang-format on
