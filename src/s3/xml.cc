#include "s3/xml.h"

#include <fmt/format.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/time/time.h"
#include "aws/sigv4.h"
#include "aws/xml_document.h"
#include "base/number.h"
#include "s3/etag.h"

namespace millrace {

namespace {

constexpr std::string_view kNamespace = "http://s3.amazonaws.com/doc/2006-03-01/";

/// Returns the document, if its root element is `root`.
absl::StatusOr<XmlDocument> Load(std::string_view xml, std::string_view root) {
  ASSIGN_OR_RETURN(XmlDocument document, XmlDocument::Parse(xml));
  const std::string_view name = document.root().name();
  if (name == root) return document;
  return absl::InvalidArgumentError(fmt::format("expected XML <{}>, got <{}>", root, name.substr(0, 64)));
}

template <typename T>
absl::StatusOr<T> Number(const XmlElement& parent, const char* name) {
  const std::string_view text = parent.Text(name);
  if (const std::optional<T> value = ParseNumber<T>(text)) return *value;
  return absl::InvalidArgumentError(fmt::format("<{}> is not a number: \"{}\"", name, text.substr(0, 64)));
}

absl::StatusOr<std::string> DecodeName(std::string_view text, bool encoded) {
  if (!encoded) return std::string(text);
  std::string spaced(text);
  std::replace(spaced.begin(), spaced.end(), '+', ' ');
  std::optional<std::string> decoded = UriDecode(spaced);
  if (!decoded)
    return absl::InvalidArgumentError(fmt::format("broken escape in a listed name: \"{}\"", text.substr(0, 256)));
  return *std::move(decoded);
}

absl::StatusOr<std::string> Required(std::string_view xml, const char* root, const char* name) {
  ASSIGN_OR_RETURN(const XmlDocument document, Load(xml, root));
  const std::string_view text = document.root().Text(name);
  if (text.empty()) return absl::InvalidArgumentError(fmt::format("XML <{}> has no <{}>", root, name));
  return std::string(text);
}

}  // namespace

std::string XmlEscape(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        out.append("&amp;");
        break;
      case '<':
        out.append("&lt;");
        break;
      case '>':
        out.append("&gt;");
        break;
      case '"':
        out.append("&quot;");
        break;
      case '\r':
        out.append("&#13;");
        break;
      case '\n':
        out.append("&#10;");
        break;
      case '\t':
        out.append("&#9;");
        break;
      default:
        out.push_back(static_cast<unsigned char>(c) < 0x20 ? '?' : c);
    }
  }
  return out;
}

XmlWriter::XmlWriter(std::string_view root) : out_("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n") {
  out_.append(fmt::format("<{} xmlns=\"{}\">", root, kNamespace));
  open_.emplace_back(root);
}

void XmlWriter::Open(std::string_view name) {
  out_.append("<").append(name).append(">");
  open_.emplace_back(name);
}

void XmlWriter::Close() {
  out_.append("</").append(open_.back()).append(">");
  open_.pop_back();
}

void XmlWriter::Element(std::string_view name, std::string_view text) {
  out_.append("<").append(name).append(">").append(XmlEscape(text)).append("</").append(name).append(">");
}

void XmlWriter::Element(std::string_view name, uint64_t value) {
  Element(name, std::to_string(value));
}

std::string XmlWriter::Finish() && {
  while (!open_.empty()) Close();
  return std::move(out_);
}

std::optional<S3ErrorBody> ParseErrorXml(std::string_view xml) {
  const absl::StatusOr<XmlDocument> document = Load(xml, "Error");
  if (!document.ok()) return std::nullopt;
  const XmlElement error = document->root();
  return S3ErrorBody{std::string(error.Text("Code")), std::string(error.Text("Message")),
                     std::string(error.Text("Region")), std::string(error.Text("RequestId"))};
}

absl::StatusOr<ListPage> ParseListXml(std::string_view xml) {
  ASSIGN_OR_RETURN(const XmlDocument document, Load(xml, "ListBucketResult"));
  const XmlElement root = document.root();
  const bool encoded = root.Text("EncodingType") == "url";
  ListPage page;
  for (const XmlElement& entry : root.Children("Contents")) {
    ObjectInfo object;
    ASSIGN_OR_RETURN(object.key, DecodeName(entry.Text("Key"), encoded));
    if (object.key.empty()) return absl::InvalidArgumentError("a listed object has no <Key>");
    ASSIGN_OR_RETURN(object.size, Number<uint64_t>(entry, "Size"));
    object.etag = StripETagQuotes(entry.Text("ETag"));
    object.modified_ms = ParseXmlTime(entry.Text("LastModified"));
    page.objects.push_back(std::move(object));
  }
  for (const XmlElement& entry : root.Children("CommonPrefixes")) {
    ASSIGN_OR_RETURN(std::string prefix, DecodeName(entry.Text("Prefix"), encoded));
    page.common_prefixes.push_back(std::move(prefix));
  }
  // AWS sorts; its directory buckets and some other stores do not.
  std::sort(page.objects.begin(), page.objects.end(),
            [](const ObjectInfo& a, const ObjectInfo& b) { return a.key < b.key; });
  std::sort(page.common_prefixes.begin(), page.common_prefixes.end());
  // If a store does not say whether there is more, its token does.
  const std::string_view truncated = root.Text("IsTruncated");
  if (absl::EqualsIgnoreCase(ToAbsl(truncated), "true") || truncated.empty()) {
    page.continuation = root.Text("NextContinuationToken");
    if (page.continuation.empty() && !truncated.empty())
      return absl::InvalidArgumentError("a truncated listing has no <NextContinuationToken>");
  }
  return page;
}

absl::StatusOr<BucketPage> ParseBucketsXml(std::string_view xml) {
  ASSIGN_OR_RETURN(const XmlDocument document, Load(xml, "ListAllMyBucketsResult"));
  const XmlElement root = document.root();
  BucketPage page;
  for (const XmlElement& entry : root.Child("Buckets").Children("Bucket")) {
    BucketEntry bucket{.name = std::string(entry.Text("Name")), .created_ms = ParseXmlTime(entry.Text("CreationDate"))};
    if (bucket.name.empty()) return absl::InvalidArgumentError("a listed bucket has no <Name>");
    page.buckets.push_back(std::move(bucket));
  }
  page.continuation = root.Text("ContinuationToken");
  return page;
}

absl::StatusOr<UploadPage> ParseUploadsXml(std::string_view xml) {
  ASSIGN_OR_RETURN(const XmlDocument document, Load(xml, "ListMultipartUploadsResult"));
  const XmlElement root = document.root();
  const bool encoded = root.Text("EncodingType") == "url";
  UploadPage page;
  for (const XmlElement& entry : root.Children("Upload")) {
    UnfinishedUpload upload;
    ASSIGN_OR_RETURN(upload.key, DecodeName(entry.Text("Key"), encoded));
    upload.upload_id = entry.Text("UploadId");
    if (upload.key.empty() || upload.upload_id.empty())
      return absl::InvalidArgumentError("a listed upload has no <Key> or no <UploadId>");
    upload.begun_ms = ParseXmlTime(entry.Text("Initiated"));
    page.uploads.push_back(std::move(upload));
  }
  page.more = root.Text("IsTruncated") == "true";
  if (!page.more) return page;
  ASSIGN_OR_RETURN(page.next.key, DecodeName(root.Text("NextKeyMarker"), encoded));
  page.next.upload_id = root.Text("NextUploadIdMarker");
  if (page.next.key.empty()) return absl::InvalidArgumentError("a truncated listing has no <NextKeyMarker>");
  return page;
}

absl::StatusOr<std::string> ParseInitiateMultipartXml(std::string_view xml) {
  return Required(xml, "InitiateMultipartUploadResult", "UploadId");
}

absl::StatusOr<std::string> ParseCompleteMultipartResultXml(std::string_view xml) {
  ASSIGN_OR_RETURN(const std::string etag, Required(xml, "CompleteMultipartUploadResult", "ETag"));
  return StripETagQuotes(etag);
}

absl::StatusOr<bool> ParseHasPartsXml(std::string_view xml) {
  ASSIGN_OR_RETURN(const XmlDocument document, Load(xml, "ListPartsResult"));
  return static_cast<bool>(document.root().Child("Part"));
}

absl::StatusOr<std::string> ParseCopyResultXml(std::string_view xml) {
  absl::StatusOr<std::string> etag = Required(xml, "CopyObjectResult", "ETag");
  if (!etag.ok()) etag = Required(xml, "CopyPartResult", "ETag");
  if (!etag.ok())
    return absl::InvalidArgumentError("it is not an XML <CopyObjectResult> or <CopyPartResult> with an <ETag>");
  return StripETagQuotes(*etag);
}

absl::StatusOr<ObjectTags> ParseTaggingXml(std::string_view xml) {
  ASSIGN_OR_RETURN(const XmlDocument document, Load(xml, "Tagging"));
  ObjectTags tags;
  for (const XmlElement& tag : document.root().Child("TagSet").Children("Tag")) {
    tags.emplace_back(tag.Text("Key"), tag.Text("Value"));
    if (tags.back().first.empty()) return absl::InvalidArgumentError("a tag has no <Key>");
  }
  return tags;
}

std::string WriteCompleteMultipartXml(const std::vector<CompletedPart>& parts) {
  XmlWriter writer("CompleteMultipartUpload");
  for (const CompletedPart& part : parts) {
    writer.Open("Part");
    writer.Element("PartNumber", static_cast<uint64_t>(part.number));
    writer.Element("ETag", fmt::format("\"{}\"", part.etag));
    if (!part.checksum_name.empty()) writer.Element("Checksum" + part.checksum_name, part.checksum);
    writer.Close();
  }
  return std::move(writer).Finish();
}

absl::StatusOr<std::vector<CompletedPart>> ParseCompleteMultipartXml(std::string_view xml) {
  ASSIGN_OR_RETURN(const XmlDocument document, Load(xml, "CompleteMultipartUpload"));
  std::vector<CompletedPart> parts;
  for (const XmlElement& node : document.root().Children("Part")) {
    CompletedPart part;
    ASSIGN_OR_RETURN(part.number, Number<int>(node, "PartNumber"));
    part.etag = StripETagQuotes(node.Text("ETag"));
    for (const char* name : {"CRC32C", "CRC64NVME"}) {
      const std::string_view checksum = node.Text(fmt::format("Checksum{}", name).c_str());
      if (checksum.empty()) continue;
      part.checksum_name = name;
      part.checksum = checksum;
    }
    if (part.etag.empty()) return absl::InvalidArgumentError(fmt::format("part {} has no <ETag>", part.number));
    parts.push_back(std::move(part));
  }
  return parts;
}

std::string WriteDeleteObjectsXml(const DeleteObjectsRequest& request) {
  XmlWriter writer("Delete");
  if (request.quiet) writer.Element("Quiet", "true");
  for (const std::string& key : request.keys) {
    writer.Open("Object");
    writer.Element("Key", key);
    writer.Close();
  }
  return std::move(writer).Finish();
}

absl::StatusOr<std::vector<DeleteObjectsError>> ParseDeleteResultXml(std::string_view xml) {
  ASSIGN_OR_RETURN(const XmlDocument document, Load(xml, "DeleteResult"));
  std::vector<DeleteObjectsError> errors;
  for (const XmlElement& node : document.root().Children("Error")) {
    errors.push_back(
        {std::string(node.Text("Key")), std::string(node.Text("Code")), std::string(node.Text("Message"))});
  }
  return errors;
}

bool XmlCanCarry(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto byte = [&](size_t at) { return static_cast<unsigned char>(text[at]); };
    const unsigned char lead = byte(i);
    const size_t length = lead < 0x80 ? 1 : lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
    if (length == 0 || text.size() - i < length) return false;
    uint32_t character = length == 1 ? lead : lead & (0x7FU >> length);
    for (size_t k = 1; k < length; ++k) {
      if ((byte(i + k) & 0xC0) != 0x80) return false;
      character = character << 6 | (byte(i + k) & 0x3F);
    }
    constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
    // Only these three control characters exist in XML; surrogates and U+FFFE, U+FFFF never do.
    const bool control = character < 0x20 && character != '\t' && character != '\n' && character != '\r';
    const bool surrogate = character >= 0xD800 && character < 0xE000;
    if (character < kLeast[length] || control || surrogate || character == 0xFFFE || character == 0xFFFF ||
        character > 0x10FFFF) {
      return false;
    }
    i += length;
  }
  return true;
}

absl::StatusOr<DeleteObjectsRequest> ParseDeleteObjectsXml(std::string_view xml) {
  ASSIGN_OR_RETURN(const XmlDocument document, Load(xml, "Delete"));
  DeleteObjectsRequest request;
  request.quiet = document.root().Text("Quiet") == "true";
  for (const XmlElement& node : document.root().Children("Object")) {
    const std::string_view key = node.Text("Key");
    if (key.empty()) return absl::InvalidArgumentError("an <Object> to be deleted has no <Key>");
    request.keys.emplace_back(key);
  }
  return request;
}

absl::StatusOr<std::string> ParseLocationConstraint(std::string_view xml) {
  ASSIGN_OR_RETURN(const XmlDocument document, Load(xml, "CreateBucketConfiguration"));
  return std::string(document.root().Text("LocationConstraint"));
}

int64_t ParseXmlTime(std::string_view text) {
  absl::Time time;
  if (!absl::ParseTime(absl::RFC3339_full, ToAbsl(text), &time, nullptr)) return 0;
  return absl::ToUnixMillis(time);
}

std::string FormatXmlTime(int64_t unix_ms) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::FromUnixMillis(unix_ms), absl::UTCTimeZone());
}

}  // namespace millrace
