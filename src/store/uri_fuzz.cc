// Any bytes as the URI of data: no crash, and what is accepted means the same when it is written and read again.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "store/uri.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const auto require = [](bool condition) {
    if (!condition) std::abort();
  };
  const std::string_view uri(reinterpret_cast<const char*>(data), size);
  const auto parsed = ParseUri(uri);
  require(parsed.ok() || absl::IsInvalidArgument(parsed.status()));
  if (!parsed.ok()) return 0;
  require(parsed->path.find('\0') == std::string::npos);
  std::string again = parsed->path;
  if (parsed->scheme == ParsedUri::Scheme::kFile) {
    require(parsed->store.empty() && !parsed->path.empty());
  } else {
    // No name may lead elsewhere in a path or a host.
    const char* const elsewhere = parsed->store.starts_with("arn:") ? "/@?#%\\ \r\n" : "/@:?#%\\ \r\n";
    require(!parsed->store.empty() && parsed->store.find_first_of(elsewhere) == std::string::npos);
    again = (parsed->scheme == ParsedUri::Scheme::kS3 ? "s3://" : "mem://") + parsed->store + "/" + parsed->path;
  }
  const auto reread = ParseUri(again);
  require(reread.ok() && *reread == *parsed);
  return 0;
}
