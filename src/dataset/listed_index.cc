#include "dataset/listed_index.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dataset/folder_join.h"
#include "dataset/index_writer.h"
#include "dataset/sample_groups.h"
#include "dataset/sample_objects.h"
#include "dataset/string_writer.h"
#include "shard/sample_name.h"

namespace millrace {

namespace {

constexpr uint64_t kMaxObjects = 1'000'000;

}  // namespace

absl::StatusOr<std::unique_ptr<Index>> ListRawObjects(const DatasetPlace& data, const std::stop_token& stop) {
  SampleObjects objects(data, stop);
  std::string bytes;
  std::vector<NewSampleField> fields;
  IndexWriter writer(DataKind::kRawObjects, std::make_unique<StringWriter>(&bytes));
  while (true) {
    ASSIGN_OR_RETURN(const std::optional<IndexedObject> object, objects.Next());
    if (!object) break;
    if (objects.kind() != DataKind::kRawObjects || writer.samples() == kMaxObjects)
      return absl::NotFoundError("not listed: it is no data set of at most a million raw objects");
    const std::string uri = data.store->Uri(data.Key(object->key));
    ASSIGN_OR_RETURN(const RawSample sample,
                     data.join != nullptr ? data.join->SampleOf(*object) : RawSampleOf(*object));
    if (sample.class_of) return absl::NotFoundError("not listed: classes are in files, which must be read");
    fields.clear();
    for (const RawSample::Field& field : sample.fields)
      fields.push_back(
          {.name = field.name, .offset = field.offset, .length = field.length, .encoding = field.encoding});
    RETURN_IF_ERROR(Annotate(
        writer.AddSample({.key = sample.key, .fields = fields, .crc32c = 0, .label = ClassFolder(sample.key)}), uri));
    RETURN_IF_ERROR(Annotate(writer.AddObject(*object), uri));
  }
  if (writer.samples() == 0) return absl::NotFoundError("there are no raw objects");
  RETURN_IF_ERROR(writer.Finish().status());
  return Index::FromBytes(std::move(bytes));
}

}  // namespace millrace
