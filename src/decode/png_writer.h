#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace millrace {

/// Encodes a PNG in RGB of 8 bits row by row, through libspng. Use it once. Not thread-safe. Pure.
class PngWriter {
 public:
  PngWriter();
  ~PngWriter();

  absl::Status Start(int width, int height);
  /// Put takes the rows from the top down, as RGBX.
  absl::Status Put(const uint8_t* row);
  absl::StatusOr<std::string> Finish();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
  std::vector<uint8_t> packed_;
};

}  // namespace millrace
