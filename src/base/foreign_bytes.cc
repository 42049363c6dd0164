#include "base/foreign_bytes.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/match.h"
#include "base/status.h"

namespace millrace {
namespace {

using std::string_view_literals::operator""sv;

struct Beginning {
  std::string_view bytes;
  std::string_view name;
};

constexpr std::string_view kGzip = "a file compressed by gzip: decompress it";
constexpr std::string_view kPage = "a web page (HTML), such as the error of a download: download it again";
constexpr std::string_view kBase64 = "an image in base64: decode it to bytes";

constexpr Beginning kBeginnings[] = {
    {"version https://git-lfs.github.com/spec/"sv,
     "a pointer of Git LFS, in place of the file: fetch the files by `git lfs pull`"},
    {"\x1f\x8b"sv, kGzip},
    {"\x28\xb5\x2f\xfd"sv, "a file compressed by zstd: decompress it"},
    {"BZh"sv, "a file compressed by bzip2: decompress it"},
    {"\xfd"
     "7zXZ\0"sv,
     "a file compressed by xz: decompress it"},
    {"PK\3\4"sv, "a ZIP archive: extract its files"},
    {"7z\xbc\xaf\x27\x1c"sv, "a 7-Zip archive: extract its files"},
    {"Rar!\x1a\7"sv, "a RAR archive: extract its files"},
    {"%PDF-"sv, "a PDF document"},
    {"/9j/"sv, kBase64},
    {"iVBORw0KGgo"sv, kBase64},
    {"R0lGOD"sv, kBase64},
    {"UklGR"sv, kBase64},
    {"data:image/"sv, kBase64},
};

// These texts may follow blanks, in any case of letters.
constexpr Beginning kTexts[] = {
    {"<!doctype html"sv, kPage},
    {"<html"sv, kPage},
    {"<head"sv, kPage},
    {"<body"sv, kPage},
    {"<?xml"sv, "XML, such as the error of a store: download it again"},
    {"<error>"sv, "XML, such as the error of a store: download it again"},
    {"{\""sv, "JSON, such as the error of a server: download it again"},
    {"[{"sv, "JSON, such as the error of a server: download it again"},
};

}  // namespace

std::string_view NameForeignBytes(ByteSpan first) {
  std::string_view text = AsText(first);
  for (const Beginning& each : kBeginnings) {
    if (text.starts_with(each.bytes)) return each.name;
  }
  if (text.starts_with("\xef\xbb\xbf"sv)) text.remove_prefix(3);
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  const auto* const found = std::find_if(std::begin(kTexts), std::end(kTexts), [text](const Beginning& each) {
    return absl::StartsWithIgnoreCase(ToAbsl(text), ToAbsl(each.bytes));
  });
  return found == std::end(kTexts) ? std::string_view() : found->name;
}

}  // namespace millrace
