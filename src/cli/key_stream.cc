#include "cli/key_stream.h"

#include <fmt/format.h>

#include <utility>

namespace millrace::cli {

KeyStream::KeyStream(ObjectStore& store, std::string below, bool may_lack)
    : store_(store), below_(std::move(below)), may_lack_(may_lack) {
  StartPage("");
}

void KeyStream::StartPage(std::string continuation) {
  ListOptions options;
  options.prefix = below_;
  options.continuation = std::move(continuation);
  coming_.emplace();
  store_.List(std::move(options), coming_->Callback());
}

absl::Status KeyStream::NextPage() {
  absl::StatusOr<ListPage> page = coming_->Wait();
  coming_.reset();
  if (may_lack_ && last_.empty() && absl::IsNotFound(page.status())) page = ListPage{};
  RETURN_IF_ERROR(page.status());
  page_ = *std::move(page);
  next_ = 0;
  for (const ObjectInfo& object : page_.objects) {
    if (object.key <= last_ || !object.key.starts_with(below_)) {
      return absl::DataLossError(fmt::format("{}: the store does not list its keys in order: {} comes after {}",
                                             store_.Uri(below_), object.key, last_));
    }
    last_ = object.key;
  }
  if (!page_.continuation.empty()) StartPage(page_.continuation);
  return absl::OkStatus();
}

absl::StatusOr<const ObjectInfo*> KeyStream::Peek() {
  for (;;) {
    while (next_ < page_.objects.size() && page_.objects[next_].key.ends_with('/')) ++next_;
    if (next_ < page_.objects.size()) return &page_.objects[next_];
    if (!coming_) return nullptr;
    RETURN_IF_ERROR(NextPage());
  }
}

}  // namespace millrace::cli
