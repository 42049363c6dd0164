#include "store/stores.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "aws/endpoint.h"
#include "base/errno_status.h"
#include "s3/client.h"
#include "s3/config.h"
#include "store/file_store.h"
#include "store/memory_store.h"
#include "store/s3_store.h"
#include "store/uri.h"

namespace millrace {

namespace {

// Returns the one name of a folder, whether it exists or not: absolute, links resolved, no '/' at the end.
absl::StatusOr<std::string> CanonicalFolder(const std::string& path) {
  std::error_code error;
  std::string folder = std::filesystem::absolute(path, error).string();
  if (!error) folder = std::filesystem::weakly_canonical(folder, error).string();
  if (error) return ErrnoStatus(error.value(), path, "resolving the path");
  if (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  return folder;
}

}  // namespace

std::string Location::Key(std::string_view name) const {
  return fmt::format("{}{}{}", prefix, prefix.empty() || prefix.ends_with('/') ? "" : "/", name);
}

Stores::Stores(Runtime& runtime, Wrap wrap) : runtime_(runtime), wrap_(std::move(wrap)) {}

Stores::Stores(Stores& below, std::optional<std::vector<std::string>> folders)
    : runtime_(below.runtime_), wrap_(below.wrap_), below_(&below), folders_(std::move(folders)) {}

Stores::~Stores() {
  client_.reset();  // cancels its requests, so that the stores need not wait long for theirs
}

absl::StatusOr<ObjectStore*> Stores::Find(const std::string& name,
                                          absl::FunctionRef<absl::StatusOr<std::unique_ptr<ObjectStore>>()> make) {
  std::lock_guard lock(mutex_);
  std::unique_ptr<ObjectStore>& store = stores_[name];
  if (store == nullptr) {
    absl::StatusOr<std::unique_ptr<ObjectStore>> made = make();
    if (made.ok() && wrap_) made = wrap_(*std::move(made));
    if (!made.ok()) {
      stores_.erase(name);
      return made.status();
    }
    store = *std::move(made);
  }
  return store.get();
}

absl::StatusOr<ObjectStore*> Stores::FindFolder(const std::string& path) {
  if (below_ != nullptr && !folders_) return below_->FindFolder(path);
  if (parent_ != nullptr) return parent_->FindFolder(path);
  if (folders_ && folders_->empty())
    return absl::PermissionDeniedError(fmt::format("{}: no files are read here", path));
  ASSIGN_OR_RETURN(const std::string folder, CanonicalFolder(path));
  std::vector<std::string> within = folders_.value_or(std::vector<std::string>());
  return Find("file://" + folder, [&]() { return std::make_unique<FileStore>(folder, std::move(within)); });
}

absl::StatusOr<ObjectStore*> Stores::FindBucket(const std::string& bucket) {
  return Find("s3://" + bucket, [&]() -> absl::StatusOr<std::unique_ptr<ObjectStore>> {
    if (client_ == nullptr) {
      if (!choice_.endpoint_url.empty())
        RETURN_IF_ERROR(Annotate(ParseEndpointUrl(choice_.endpoint_url).status(), "endpoint"));
      const AwsEnvironment environment = WithChoice(ProcessEnvironment(), choice_);
      ASSIGN_OR_RETURN(S3Config config, LoadS3Config(environment));
      endpoint_ = config.endpoint_url;
      principal_ = S3Principal(environment);
      client_ = std::make_unique<S3Client>(runtime_, std::move(config));
      client_->SetOutageLimit(absl::FromChrono(outage_limit_));
    }
    return std::make_unique<S3Store>(runtime_, *client_, bucket, endpoint_, principal_);
  });
}

void Stores::SetOutageLimit(std::chrono::nanoseconds limit) {
  std::lock_guard lock(mutex_);
  outage_limit_ = limit;
  if (client_ != nullptr) client_->SetOutageLimit(absl::FromChrono(limit));
  for (const auto& [choice, stores] : chosen_) stores->SetOutageLimit(limit);
}

Stores& Stores::With(const AwsChoice& choice) {
  if (choice == AwsChoice()) return *this;
  std::lock_guard lock(mutex_);
  std::unique_ptr<Stores>& stores = chosen_[choice];
  if (stores == nullptr) {
    stores = std::make_unique<Stores>(runtime_, wrap_);
    stores->choice_ = choice;
    stores->parent_ = this;
    stores->outage_limit_ = outage_limit_;
  }
  return *stores;
}

absl::StatusOr<Location> Stores::OpenOwn(const OwnFolder& folder) {
  if (below_ != nullptr) return below_->OpenOwn(folder);
  if (parent_ != nullptr) return parent_->OpenOwn(folder);
  ASSIGN_OR_RETURN(ObjectStore * store,
                   Find(fmt::format("own:{}:{}:{:o}", folder.path, folder.owner, folder.file_mode()),
                        [&]() { return std::make_unique<FileStore>(folder); }));
  return Location{.store = store, .prefix = {}};
}

absl::StatusOr<Location> Stores::Open(std::string_view uri) {
  ASSIGN_OR_RETURN(ParsedUri parsed, ParseUri(uri));
  if (below_ != nullptr && parsed.scheme != ParsedUri::Scheme::kFile) return below_->Open(uri);
  if (parent_ != nullptr && parsed.scheme == ParsedUri::Scheme::kMemory) return parent_->Open(uri);
  Location location;
  switch (parsed.scheme) {
    case ParsedUri::Scheme::kFile: {
      ASSIGN_OR_RETURN(location.store, FindFolder(parsed.path));
      return location;
    }
    case ParsedUri::Scheme::kMemory: {
      ASSIGN_OR_RETURN(location.store,
                       Find("mem://" + parsed.store, [&]() { return std::make_unique<MemoryStore>(parsed.store); }));
      break;
    }
    case ParsedUri::Scheme::kS3: {
      ASSIGN_OR_RETURN(location.store, FindBucket(parsed.store));
      break;
    }
  }
  location.prefix = std::move(parsed.path);
  return location;
}

absl::StatusOr<Location> Stores::OpenObject(std::string_view uri) {
  ASSIGN_OR_RETURN(const ParsedUri parsed, ParseObjectUri(uri));
  if (parsed.scheme != ParsedUri::Scheme::kFile) return Open(uri);
  const std::filesystem::path path(parsed.path);
  Location location;
  ASSIGN_OR_RETURN(location.store, FindFolder(path.has_parent_path() ? path.parent_path().string() : "."));
  location.prefix = path.filename().string();
  return location;
}

absl::StatusOr<Location> Stores::OpenInTree(std::string_view uri) {
  ASSIGN_OR_RETURN(const ParsedUri parsed, ParseUri(uri));
  if (parsed.scheme != ParsedUri::Scheme::kFile) return Open(uri);
  ASSIGN_OR_RETURN(const std::string folder, CanonicalFolder(parsed.path));
  Location location;
  ASSIGN_OR_RETURN(location.store, FindFolder("/"));
  location.prefix = folder.substr(1);
  if (!location.prefix.empty()) location.prefix += '/';
  return location;
}

absl::StatusOr<Location> Stores::OpenObjectInTree(std::string_view uri) {
  ASSIGN_OR_RETURN(const ParsedUri parsed, ParseObjectUri(uri));
  if (parsed.scheme != ParsedUri::Scheme::kFile) return Open(uri);
  const std::filesystem::path path(parsed.path);
  ASSIGN_OR_RETURN(Location location, OpenInTree(path.has_parent_path() ? path.parent_path().string() : "."));
  location.prefix += path.filename().string();
  return location;
}

}  // namespace millrace
