#pragma once

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>

#include "base/number.h"

namespace millrace {

/// Takes members of a JSON object, all of which must be there and be of the right type:
///
///     const bool whole = JsonMembers(json).Take("name", &name).Take("bytes", &bytes).whole();
///
/// Text goes into a std::string, true or false into a bool, a whole number that is not negative into an unsigned
/// integer. After the first member that is missing or of another type, nothing more is taken. The object must outlive
/// this.
class JsonMembers {
 public:
  using Json = nlohmann::ordered_json;

  explicit JsonMembers(const Json& json) : json_(json), whole_(json.is_object()) {}

  bool whole() const { return whole_; }

  template <typename Value>
  JsonMembers& Take(const char* name, Value* into) {
    const Json* const member = Find(name);
    if (member == nullptr) return *this;
    if constexpr (std::is_same_v<Value, std::string>) {
      whole_ = member->is_string();
    } else if constexpr (std::is_same_v<Value, bool>) {
      whole_ = member->is_boolean();
    } else {
      whole_ = member->is_number_unsigned();
    }
    if (whole_) *into = member->template get<Value>();
    return *this;
  }

  /// Takes a checksum as a text of eight digits of hex.
  JsonMembers& TakeCrc(const char* name, uint32_t* into) {
    std::string text;
    Take(name, &text);
    whole_ = whole_ && text.size() == 8 && ParseNumber(text, into, 16);
    return *this;
  }

  /// Calls `take` with each entry of a list, until it returns false.
  template <typename Each>
  JsonMembers& TakeEach(const char* name, Each take) {
    const Json* const member = Find(name);
    if (member == nullptr) return *this;
    whole_ = member->is_array() && std::all_of(member->begin(), member->end(), take);
    return *this;
  }

 private:
  const Json* Find(const char* name) {
    const auto found = whole_ ? json_.find(name) : json_.end();
    whole_ = whole_ && found != json_.end();
    return whole_ ? &*found : nullptr;
  }

  const Json& json_;
  bool whole_;
};

}  // namespace millrace
