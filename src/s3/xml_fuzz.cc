// The input is parsed as each of S3's documents: there is no crash, and an accepted document holds what it promises.
#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "s3/etag.h"
#include "s3/xml.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const auto require = [](bool condition) {
    if (!condition) std::abort();
  };
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  ParseErrorXml(text);
  if (const auto page = ParseListXml(text); page.ok()) {
    const auto by_key = [](const ObjectInfo& a, const ObjectInfo& b) { return a.key < b.key; };
    require(std::is_sorted(page->objects.begin(), page->objects.end(), by_key));
    for (const ObjectInfo& object : page->objects) require(!object.key.empty());
  }
  if (const auto id = ParseInitiateMultipartXml(text); id.ok()) require(!id->empty());
  (void)ParseCompleteMultipartResultXml(text);
  if (const auto page = ParseBucketsXml(text); page.ok()) {
    for (const BucketEntry& bucket : page->buckets) require(!bucket.name.empty());
  }
  if (const auto page = ParseUploadsXml(text); page.ok()) {
    for (const UnfinishedUpload& upload : page->uploads) require(!upload.key.empty() && !upload.upload_id.empty());
    require(!page->more || !page->next.key.empty());
  }
  if (const auto tags = ParseTaggingXml(text); tags.ok()) {
    for (const auto& [name, value] : *tags) require(!name.empty());
  }
  (void)ParseDeleteObjectsXml(text);
  (void)ParseDeleteResultXml(text);
  if (!text.empty() && XmlCanCarry(text)) {
    const auto request = ParseDeleteObjectsXml(WriteDeleteObjectsXml({.keys = {std::string(text)}, .quiet = true}));
    require(request.ok() && request->quiet && request->keys == std::vector<std::string>{std::string(text)});
  }
  if (const auto parts = ParseCompleteMultipartXml(text); parts.ok()) {
    const auto again = ParseCompleteMultipartXml(WriteCompleteMultipartXml(*parts));
    // Control characters have no form in XML; everything else survives writing and reading.
    const bool plain = std::all_of(parts->begin(), parts->end(), [](const CompletedPart& part) {
      return part.number >= 0 &&
             std::all_of(part.etag.begin(), part.etag.end(), [](char c) { return c >= ' ' && c <= '~'; }) &&
             std::all_of(part.checksum.begin(), part.checksum.end(), [](char c) { return c >= ' ' && c <= '~'; }) &&
             StripETagQuotes(part.etag) == part.etag;
    });
    if (plain) require(again.ok() && *again == *parts);
  }
  return 0;
}
