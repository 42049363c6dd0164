#pragma once

#include <string>

#include "store/object_store.h"

namespace millrace {

/// Writes an index, which is an object like any other, into a string that outlives it.
class StringWriter final : public ObjectWriter {
 public:
  explicit StringWriter(std::string* out) : out_(out) {}
  absl::Status Append(ByteSpan bytes) override {
    out_->append(AsText(bytes));
    return absl::OkStatus();
  }
  absl::StatusOr<ObjectInfo> Commit() override { return ObjectInfo(); }

 private:
  std::string* const out_;
};

}  // namespace millrace
