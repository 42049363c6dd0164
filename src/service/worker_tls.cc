#include "service/worker_tls.h"

#include <fmt/format.h>

#include "base/file_text.h"

namespace millrace {

namespace {

absl::StatusOr<std::string> ReadPem(const std::string& path) {
  constexpr size_t kMost = size_t{1} << 20;
  absl::StatusOr<std::string> text = ReadFileText(path, kMost);
  if (!text.ok()) {
    return absl::NotFoundError(
        fmt::format("{} cannot be read; the folder must hold ca.crt, tls.crt and tls.key, all of them PEM", path));
  }
  if (text->find("-----BEGIN ") == text->npos)
    return absl::InvalidArgumentError(fmt::format("{} is not a PEM file", path));
  return text;
}

}  // namespace

absl::StatusOr<WorkerTls> ReadWorkerTls(const std::string& folder) {
  WorkerTls tls;
  tls.ca_file = folder + "/ca.crt";
  ASSIGN_OR_RETURN(tls.ca_pem, ReadPem(tls.ca_file));
  ASSIGN_OR_RETURN(tls.identity.certificate_pem, ReadPem(folder + "/tls.crt"));
  ASSIGN_OR_RETURN(tls.identity.key_pem, ReadPem(folder + "/tls.key"));
  return tls;
}

}  // namespace millrace
