// Any kind of label and any bytes as its field: no crash, and what is accepted is of the kind asked for.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "decode/label.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const auto require = [](bool condition) {
    if (!condition) std::abort();
  };
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::string_view kind = input.substr(0, input.find('\n'));  // the rest is the field
  const std::string_view field = input.substr(std::min(size, kind.size() + 1));
  const auto spec = LabelSpec::Parse(kind);
  if (!spec.ok()) return 0;
  const auto label = ParseLabel(AsBytes(field), *spec);
  require(label.ok() || absl::IsDataLoss(label.status()) || absl::IsInvalidArgument(label.status()));
  if (!label.ok()) return 0;
  if (spec->kind == LabelSpec::Kind::kInt) {
    const int64_t* number = std::get_if<int64_t>(&*label);
    require(number != nullptr);
    const auto again = ParseLabel(AsBytes(std::to_string(*number)), LabelSpec{});
    require(again.ok() && *again == *label);
  } else if (spec->kind == LabelSpec::Kind::kFloat) {
    require(std::holds_alternative<double>(*label));
  } else {
    const std::string* text = std::get_if<std::string>(&*label);
    require(text != nullptr && (!spec->json_path.empty() || *text == field));
    // The JSON library and our own check agree on what UTF-8 is.
    const auto again = ParseLabel(AsBytes(*text), LabelSpec{LabelSpec::Kind::kText, ""});
    require(again.ok() && *again == *label);
  }
  return 0;
}
