#include "dataset/dataset_warnings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/counted.h"
#include "dataset/duplicate_keys.h"
#include "dataset/shard_names.h"
#include "shard/token_format.h"
#include "store/joined_objects.h"

namespace millrace {

namespace {

constexpr size_t kShownPairs = 3;

std::vector<std::string> WarningsOfClasses(const Index& index) {
  const std::vector<std::string>& classes = index.class_names();
  const bool splits = classes.size() > 1 && std::all_of(classes.begin(), classes.end(), [](const std::string& name) {
                        return !SplitWord(name).empty();
                      });
  if (!splits) return {};
  return {
      fmt::format("the classes are {}, which are names of parts of a data set: give the URI of one of these folders, "
                  "whose own folders are the classes then",
                  fmt::join(classes, ", "))};
}

}  // namespace

absl::StatusOr<std::vector<std::string>> WarningsOfNames(const DatasetPlace& place, const Index& index) {
  if (index.kind() == DataKind::kRawObjects) return WarningsOfClasses(index);
  if (!place.names.empty() || (place.selection != nullptr && place.selection->NamesAll()))
    return std::vector<std::string>();
  ShardNames names(place.selection.get());
  IndexedObject object;
  for (uint64_t i = 0; i < index.objects(); ++i) {
    RETURN_IF_ERROR(index.LookupObject(static_cast<uint32_t>(i), &object));
    if (index.kind() != DataKind::kTokens || !IsMegatronIdx(object.key)) names.Add(object.key);
  }
  return names.Warnings();
}

absl::StatusOr<std::vector<std::string>> WarningsOfKeys(const Index& index, MemoryBudget& memory,
                                                        const std::stop_token& stop) {
  ASSIGN_OR_RETURN(const DuplicateKeys found, FindDuplicateKeys(index, memory, {.progress = nullptr, .stop = stop}));
  if (found.count == 0) return std::vector<std::string>();
  std::vector<std::string> pairs;
  IndexedObject first;
  IndexedObject again;
  for (const DuplicateKey& pair : found.examples) {
    if (pairs.size() == kShownPairs) break;
    RETURN_IF_ERROR(index.LookupObject(pair.first.object, &first));
    RETURN_IF_ERROR(index.LookupObject(pair.again.object, &again));
    pairs.push_back(fmt::format("'{}' in {} and {}", pair.first.key, JoinedName(first.key), JoinedName(again.key)));
  }
  return std::vector<std::string>{fmt::format(
      "{} {} the key of a sample before: {}{}; if these are copies, remove them", Counted(found.count, "sample"),
      found.count == 1 ? "has" : "have", fmt::join(pairs, ", "), found.count > pairs.size() ? ", ..." : "")};
}

}  // namespace millrace
