#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "aws/credential_documents.h"
#include "aws/settings.h"
#include "base/status.h"
#include "net/http_message.h"

namespace millrace {

/// This is the next step that a source of credentials asks for; the answer comes as a CredentialInput.
struct ReadFileAction {
  std::string path;
};
struct WriteFileAction {
  std::string path;  // replaced, for this user only
  std::string contents;
};
struct RunProcessAction {
  std::string command;  // for the shell; may contain secrets
};
struct CallAction {
  HttpEndpoint endpoint;
  HttpRequestHead head;
  std::string body;
  absl::Duration timeout;  // of one attempt
  int attempts = 1;
};
/// The last two alternatives end it: the credentials, or why there are none.
using CredentialAction =
    std::variant<ReadFileAction, WriteFileAction, RunProcessAction, CallAction, ExpiringCredentials, absl::Status>;

/// Represents the result of an action.
struct CredentialInput {
  absl::Status status;  // of reading, writing, running or calling; OK when any HTTP answer came
  int http_status = 0;
  std::string text;
  std::optional<absl::Time> date;  // the server's clock
};

/// This is one way to credentials, as a state machine without I/O, clock or threads: Begin once, then OnInput after
/// each action, until credentials or an error come. `now` is the time by the clock of the server, as far as it is
/// known. Errors name neither secrets nor parts of documents.
class CredentialSource {
 public:
  virtual ~CredentialSource() = default;
  /// Returns the name for messages: "web identity (role R)".
  virtual std::string Name() const = 0;
  /// Returns whose credentials they are, as far as it is known without a request: "role ARN", "profile NAME", "key ID".
  /// It holds no secret. Programs with one principal may read the same data.
  virtual std::string Principal(const AwsEnvironment& environment) const = 0;
  virtual CredentialAction Begin(absl::Time now) = 0;
  virtual CredentialAction OnInput(CredentialInput input, absl::Time now) = 0;
  /// Returns true if the same call may succeed when it is made again.
  virtual bool Passing(const CredentialInput& input) const;
};

/// Returns text of a server for a message: short, on one line, without any of `secrets`, plain or percent-encoded.
std::string QuoteWithout(const std::vector<std::string_view>& secrets, std::string_view text);

/// Returns an error of such an answer: Unavailable when it may pass, else PermissionDenied; "WHO answered HTTP 403;
/// REMEDY".
absl::Status RefusedBy(std::string_view who, const CredentialInput& input, std::string_view remedy);

/// This is CheckSecret or CheckToken.
using CheckOfToken = absl::Status (*)(std::string_view value, std::string_view name);

/// Returns the contents of a token file, without spaces around it.
absl::StatusOr<std::string> TokenOf(const CredentialInput& file, std::string_view what, CheckOfToken check);

}  // namespace millrace
