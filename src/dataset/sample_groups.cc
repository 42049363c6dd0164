#include "dataset/sample_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "dataset/index_format.h"
#include "shard/sample_name.h"
#include "store/joined_objects.h"

namespace millrace {

namespace {

constexpr uint64_t kMaxHeld = 4096;  // objects

// Returns the field of an object of a sample with that key: "mask.png".
std::string FieldOf(const ObjectInfo& object, std::string_view sample_key) {
  std::string field = object.key.substr(sample_key.size() + 1);
  for (char& c : field) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return field;
}

bool HoldsClass(const ObjectInfo& object) {
  return object.size <= kMaxClassFileBytes && SplitObjectName(object.key)->field == kClassField;
}

// Returns true for a copy of an image. "1.jpg.jpg" beside "1.jpg" (`word` is "jpg") is another image, and no field of
// it. "1.jpg.txt" is a field, and so is "1.jpg.png", as masks are called.
bool IsCopyOfImage(const std::string& word, const std::vector<ObjectInfo>& group) {
  const std::string field = absl::AsciiStrToLower(word);
  return IsImageField(field) && std::any_of(group.begin(), group.end(), [&](const ObjectInfo& object) {
           return SplitObjectName(object.key)->field == field;
         });
}

ObjectInfo Join(std::vector<ObjectInfo> group) {
  if (group.size() == 1) return std::move(group.front());
  std::sort(group.begin(), group.end(), [](const ObjectInfo& a, const ObjectInfo& b) {
    const bool a_last = HoldsClass(a);
    const bool b_last = HoldsClass(b);
    return a_last != b_last ? b_last : a.key < b.key;
  });
  return JoinObjects(group);
}

}  // namespace

// Returns true if the objects of `group` and `more` can be one sample.
bool SampleGroups::Joins(const Node& node, const Group& group, const Group& more) {
  if (group.empty()) return true;
  if (group.size() + more.size() > kMaxJoinedObjects) return false;
  Group all = group;
  all.insert(all.end(), more.begin(), more.end());
  std::set<std::string> fields;
  for (const ObjectInfo& object : all) {
    if (!fields.insert(FieldOf(object, node.key)).second) return false;
  }
  const ObjectInfo joined = Join(std::move(all));
  return joined.key.size() <= kMaxNameBytes && joined.etag.size() <= index_format::kMaxEtagBytes;
}

void SampleGroups::Add(ObjectInfo object) {
  const std::string_view key = object.key;
  if (key.starts_with("./")) return waiting_.push_back({std::move(object)});  // its sample's key is another's
  const auto below = [&](const Node& node) {
    return key.size() > node.key.size() && key[node.key.size()] == '.' && key.starts_with(node.key);
  };
  while (!open_.empty() && !below(open_.back())) CloseLast();
  if (open_.empty()) PassOn();
  const size_t end = SplitObjectName(key)->key.size();
  size_t from = open_.empty() ? key.rfind('/') + 1 : open_.back().key.size() + 1;
  while (open_.empty() || open_.back().key.size() < end) {
    const size_t dot = key.find('.', from);
    open_.push_back({.key = std::string(key.substr(0, dot)), .own = {}, .joinable = {}});
    from = dot + 1;
  }
  Node& node = open_.back();
  if (Joins(node, node.own, {object})) {
    node.own.push_back(std::move(object));
  } else {
    waiting_.push_back({std::move(object)});
  }
  if (++held_ == kMaxHeld) Settle();
}

// Closes the last node: no object of its key comes any more.
void SampleGroups::CloseLast() {
  Node node = std::move(open_.back());
  open_.pop_back();
  for (Group& more : node.joinable) {
    if (!node.own.empty() && Joins(node, node.own, more)) {
      std::move(more.begin(), more.end(), std::back_inserter(node.own));
    } else {
      waiting_.push_back(std::move(more));
    }
  }
  if (node.own.empty()) return;
  const bool may_join = !open_.empty() && !open_.back().alone && OwnerOfKey(node.key) == open_.back().key &&
                        !IsCopyOfImage(node.key.substr(open_.back().key.size() + 1), node.own);
  (may_join ? open_.back().joinable : waiting_).push_back(std::move(node.own));
}

// Decides the open nodes by the objects that have come so far.
void SampleGroups::Settle() {
  for (Node& node : open_) {
    std::move(node.joinable.begin(), node.joinable.end(), std::back_inserter(waiting_));
    if (!node.own.empty()) waiting_.push_back(std::move(node.own));
    node.joinable.clear();
    node.own.clear();
    node.alone = true;
  }
  PassOn();
}

void SampleGroups::PassOn() {
  std::vector<ObjectInfo> samples;
  for (Group& group : waiting_) samples.push_back(Join(std::move(group)));
  std::sort(samples.begin(), samples.end(), [](const ObjectInfo& a, const ObjectInfo& b) { return a.key < b.key; });
  std::move(samples.begin(), samples.end(), std::back_inserter(ready_));
  waiting_.clear();
  held_ = 0;
}

void SampleGroups::End() {
  while (!open_.empty()) CloseLast();
  PassOn();
}

std::optional<ObjectInfo> SampleGroups::Next() {
  if (ready_.empty()) return std::nullopt;
  ObjectInfo next = std::move(ready_.front());
  ready_.pop_front();
  return next;
}

absl::StatusOr<RawSample> RawSampleOf(const IndexedObject& object) {
  ASSIGN_OR_RETURN(const std::vector<ObjectInfo> objects, SplitJoined(object.key, ""));
  RawSample sample;
  if (objects.size() == 1) {
    std::optional<SampleName> name = SplitObjectName(object.key);
    if (!name) return absl::InvalidArgumentError(fmt::format("'{}' is no name of a sample", object.key));
    sample.key = std::string(name->key);
    sample.fields.push_back({.name = std::move(name->field), .offset = 0, .length = object.size});
    return sample;
  }
  for (const ObjectInfo& each : objects) {
    const std::optional<SampleName> name = SplitObjectName(each.key);
    if (!name) return absl::InvalidArgumentError(fmt::format("'{}' is no name of a sample", each.key));
    if (sample.key.empty() || name->key.size() < sample.key.size()) sample.key = std::string(name->key);
  }
  uint64_t offset = 0;
  for (const ObjectInfo& each : objects) {
    if (!each.key.starts_with(sample.key + "."))
      return absl::InvalidArgumentError(fmt::format("'{}' is no object of the sample '{}'", each.key, sample.key));
    RawSample::Field field{.name = FieldOf(each, sample.key), .offset = offset, .length = each.size};
    offset += each.size;
    if (&each == &objects.back() && !sample.fields.empty() && field.name == kClassField && HoldsClass(each)) {
      sample.class_of = std::move(field);
    } else {
      sample.fields.push_back(std::move(field));
    }
  }
  return sample;
}

}  // namespace millrace
