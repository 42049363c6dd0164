#pragma once

#include <string>
#include <vector>

#include "store/store_around.h"

namespace millrace {

/// Shows some objects of a store as if it had no others: to be listed, asked for and read. It is for channels whose
/// data are not all objects below a prefix.
class ChosenStore final : public StoreAround {
 public:
  /// The objects may come in any order, and more than once. `below` must outlive it.
  ChosenStore(ObjectStore& below, std::vector<ObjectInfo> objects);

  void Get(std::string key, MutableByteSpan into, GetOptions options, GetCallback done) override;
  void Head(std::string key, HeadOptions options, HeadCallback done) override;
  void List(ListOptions options, ListCallback done) override;

 private:
  bool Has(std::string_view key) const;
  absl::Status Missing(std::string_view key) const;
  ListPage Page(const ListOptions& options) const;

  std::vector<ObjectInfo> objects_;  // in bytewise order of keys
};

}  // namespace millrace
