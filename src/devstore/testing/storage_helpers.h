#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/crypto.h"
#include "devstore/listing.h"
#include "devstore/s3_error.h"
#include "devstore/storage.h"

/// Tests of storages need these again and again.

namespace millrace {

inline std::string CodeOf(const absl::Status& status) {
  return status.ok() ? "" : std::string(DescribeS3Error(status).name);
}

inline absl::Status Any(const ObjectRecord*) {
  return absl::OkStatus();
}

class TempFolder {
 public:
  TempFolder() : path_(::testing::TempDir() + "devstore_testXXXXXX") { EXPECT_NE(mkdtemp(path_.data()), nullptr); }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline std::shared_ptr<Content> Blob(Storage& storage, std::string_view text) {
  auto writer = storage.NewBlob(text.size());
  EXPECT_TRUE(writer.ok()) << writer.status();
  // The text is written in two pieces, as bodies come.
  EXPECT_TRUE((*writer)->Append(AsBytes(text.substr(0, text.size() / 2))).ok());
  EXPECT_TRUE((*writer)->Append(AsBytes(text.substr(text.size() / 2))).ok());
  return *(*writer)->Finish();
}

inline absl::Status Put(Storage& storage, const std::string& bucket, const std::string& key, std::string_view text,
                        ObjectAttributes attributes = {}) {
  return storage.Put(bucket, key, Blob(storage, text), std::move(attributes), HexEncode(Md5(AsBytes(text))), Any)
      .status();
}

inline absl::StatusOr<std::string> Get(Storage& storage, const std::string& bucket, const std::string& key) {
  ASSIGN_OR_RETURN(const StoredObject object, storage.Open(bucket, key));
  std::string text(object.content->size(), '\0');
  RETURN_IF_ERROR(object.content->Read(0, AsWritableBytes(text)));
  return text;
}

inline std::vector<std::string> Keys(Storage& storage, const std::string& bucket, const std::string& prefix = "") {
  auto walk = storage.Walk(bucket);
  EXPECT_TRUE(walk.ok()) << walk.status();
  auto listing = ListKeys(**walk, {.prefix = prefix, .delimiter = "", .from = "", .max_keys = 100'000});
  EXPECT_TRUE(listing.ok()) << listing.status();
  return listing->keys;
}

}  // namespace millrace
