#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "devstore/storage.h"
#include "devstore/testing/storage_helpers.h"

/// Tests of unfinished uploads share these.

namespace millrace {

inline constexpr size_t kPart = 100'003;  // no multiple of a block: neighbours share one

/// Returns bytes that show which part and which attempt they are of.
inline std::string Bytes(size_t size, uint64_t seed) {
  std::string text(size, '\0');
  Rng rng(seed);
  for (char& c : text) c = static_cast<char>(rng.Below(256));
  return text;
}

inline std::string ETagOf(std::string_view text) {
  return HexEncode(Md5(AsBytes(text)));
}

inline std::string Text(const Content& content) {
  std::string text(content.size(), '\0');
  EXPECT_TRUE(content.Read(0, AsWritableBytes(text)).ok());
  return text;
}

/// The test has one upload of an object "k".
class UploadTest : public ::testing::Test {
 protected:
  virtual void Open() {
    storage_ = nullptr;
    auto opened = OpenDirStorage(folder_.path());
    ASSERT_TRUE(opened.ok()) << opened.status();
    storage_ = *std::move(opened);
  }
  void SetUp() override {
    Open();
    ASSERT_TRUE(storage_->CreateBucket("bucket").ok());
    Begin();
  }
  /// Begins a new upload in place of the one there is.
  void Begin() {
    if (!id_.empty()) storage_->RemoveUpload(id_).IgnoreError();
    Upload upload;
    upload.bucket = "bucket";
    upload.key = "k";
    id_ = *storage_->CreateUpload(upload);
  }

  /// Returns a part that is not stored yet.
  std::shared_ptr<Content> Written(std::string_view text) {
    auto writer = storage_->NewBlob(text.size());
    EXPECT_TRUE(writer.ok()) << writer.status();
    EXPECT_TRUE((*writer)->Append(AsBytes(text.substr(0, text.size() / 3))).ok());
    EXPECT_TRUE((*writer)->Append(AsBytes(text.substr(text.size() / 3))).ok());
    return *(*writer)->Finish();
  }
  absl::Status Store(int number, std::shared_ptr<Content> content, std::string_view text) {
    UploadPart part;
    part.etag = ETagOf(text);
    return storage_->PutPart(id_, number, std::move(content), std::move(part));
  }
  absl::Status PutPart(int number, std::string_view text) { return Store(number, Written(text), text); }

  absl::StatusOr<std::shared_ptr<Content>> Join(const std::vector<int>& numbers) {
    ASSIGN_OR_RETURN(const Upload upload, storage_->FindUpload("bucket", "k", id_));
    std::vector<std::shared_ptr<const Content>> contents;
    for (const int number : numbers) contents.push_back(upload.parts.at(number).content);
    return storage_->Concatenate(contents);
  }
  /// Completes as the service does, but that the upload stays.
  absl::Status PutJoined(const std::vector<int>& numbers, Storage::Check check = Any) {
    ASSIGN_OR_RETURN(std::shared_ptr<Content> whole, Join(numbers));
    return storage_->Put("bucket", "k", std::move(whole), {}, "etag-2", check).status();
  }
  absl::Status Complete(const std::vector<int>& numbers) {
    RETURN_IF_ERROR(PutJoined(numbers));
    return storage_->RemoveUpload(id_);
  }
  void ExpectParts(const std::map<int, std::string>& expected) {
    const auto upload = storage_->FindUpload("bucket", "k", id_);
    ASSERT_TRUE(upload.ok()) << upload.status();
    ASSERT_EQ(upload->parts.size(), expected.size());
    for (const auto& [number, text] : expected) {
      ASSERT_TRUE(upload->parts.contains(number)) << number;
      const UploadPart& part = upload->parts.at(number);
      EXPECT_EQ(part.etag, ETagOf(text)) << number;
      EXPECT_TRUE(Text(*part.content) == text) << number;
    }
  }

  TempFolder folder_;
  std::unique_ptr<Storage> storage_;
  std::string id_;
};

}  // namespace millrace
