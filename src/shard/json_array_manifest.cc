#include "shard/json_array_manifest.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

namespace millrace {

namespace {

using Json = nlohmann::json;

constexpr int kMaxArrayDepth = 100;

// Entry by entry; the first has the number 0.
class JsonArrayManifest final : public nlohmann::json_sax<Json> {
 public:
  explicit JsonArrayManifest(ManifestSink each) : each_(each) { manifest_.row_word = "entry"; }

  absl::StatusOr<Manifest> Read(std::string_view text) {
    const bool parsed = Json::sax_parse(text, this);
    if (status_.ok() && (!parsed || entry_ == 0)) status_ = NoHead();
    RETURN_IF_ERROR(status_);
    return std::move(manifest_);
  }

  bool null() override { return Other(); }
  bool boolean(bool) override { return Other(); }
  bool number_integer(number_integer_t) override { return Other(); }
  bool number_unsigned(number_unsigned_t) override { return Other(); }
  bool number_float(number_float_t, const string_t&) override { return Other(); }
  bool binary(binary_t&) override { return Other(); }
  bool string(string_t& text) override {
    if (depth_ == 2 && key_ == "prefix") {
      manifest_.prefix = text;
      has_prefix_ = true;
    }
    if (depth_ != 1) return true;
    if (entry_ == 0) return Fail(NoHead());
    if (text.empty()) return Other();
    absl::Status status = each_(manifest_, {.path = text, .line = entry_, .label = {}, .cells = {}});
    ++entry_;
    return status.ok() || Fail(std::move(status));
  }
  bool start_object(size_t) override { return Begin(entry_ == 0); }
  bool end_object() override { return End(); }
  bool start_array(size_t) override { return Begin(false); }
  bool end_array() override { return End(); }
  bool key(string_t& name) override {
    if (depth_ == 2) key_ = name;
    return true;
  }
  bool parse_error(size_t at, const std::string&, const nlohmann::detail::exception&) override {
    return Fail(absl::InvalidArgumentError(
        fmt::format("malformed JSON (in UTF-8) at byte {}, after entry {} of the array", at, entry_)));
  }

 private:
  static absl::Status NoHead() {
    return absl::InvalidArgumentError("no JSON array that begins with {\"prefix\": \"s3://bucket/folder/\"}");
  }
  bool Fail(absl::Status status) {
    if (status_.ok()) status_ = std::move(status);
    return false;
  }
  // Takes anything that is not a string.
  bool Other() {
    if (depth_ != 1) return true;
    return Fail(entry_ == 0 ? NoHead()
                            : absl::InvalidArgumentError(fmt::format("entry {} is not the name of an object", entry_)));
  }
  bool Begin(bool is_head) {
    if (depth_ == 1 && !is_head) return Other();
    if (depth_ == kMaxArrayDepth) return Fail(NoHead());
    ++depth_;
    return true;
  }
  bool End() {
    --depth_;
    if (depth_ != 1) return true;
    if (!has_prefix_) return Fail(NoHead());
    entry_ = 1;  // only the first may be an object
    return true;
  }

  const ManifestSink each_;
  int depth_ = 0;
  uint64_t entry_ = 0;
  std::string key_;
  bool has_prefix_ = false;
  absl::Status status_;
  Manifest manifest_;
};

}  // namespace

absl::StatusOr<Manifest> ParseJsonArrayManifest(std::string_view text, ManifestSink each) {
  return JsonArrayManifest(each).Read(text);
}

}  // namespace millrace
