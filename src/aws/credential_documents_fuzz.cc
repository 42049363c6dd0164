// Any bytes as each document that brings credentials: no crash, what is accepted can be sent, and no error quotes it.
#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "aws/credential_documents.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const auto require = [](bool condition) {
    if (!condition) std::abort();
  };
  const auto sendable = [](std::string_view value) {
    return std::all_of(value.begin(), value.end(), [](char c) { return c > ' ' && c <= '~'; });
  };
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const auto& parse :
       {ParseStsXml, ParseCreateSessionXml, ParseMetadataJson, ParseProcessJson, ParseSsoRoleJson}) {
    const auto credentials = parse(text);
    if (!credentials.ok()) {
      require(credentials.status().message().size() < 100);
      continue;
    }
    const Credentials& keys = credentials->keys;
    require(!keys.access_key.empty() && !keys.secret_key.empty());
    require(sendable(keys.access_key) && sendable(keys.secret_key) && sendable(keys.session_token));
  }
  if (const auto token = ParseSsoTokenJson(text); token.ok())
    require(!token->access_token.empty() && sendable(token->access_token));
  if (const auto renewed = RenewSsoTokenJson(text, text, absl::UnixEpoch()); renewed.ok())
    require(sendable(renewed->access_token) && ParseSsoTokenJson(renewed->file).ok());
  ParseStsErrorXml(text);
  return 0;
}
