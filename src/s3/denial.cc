#include "s3/denial.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/ascii.h"
#include "s3/bucket_name.h"

namespace millrace {

namespace {

constexpr std::string_view kSetEncryption =
    "set MILLRACE_S3_SSE=aws:kms (and MILLRACE_S3_SSE_KMS_KEY_ID for a key of your own)";

bool HasText(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool IsWrite(std::string_view verb) {
  return verb == "PUT" || verb == "CopyObject" || verb == "CreateMultipartUpload" || verb == "UploadPart" ||
         verb == "UploadPartCopy" || verb == "CompleteMultipartUpload";
}

std::string_view ActionOfVerb(const S3Denial& denial) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kOthers = {{
      {"GetObjectTagging", "s3:GetObjectTagging"},
      {"DELETE", "s3:DeleteObject"},
      {"DeleteObjects", "s3:DeleteObject"},
      {"AbortMultipartUpload", "s3:AbortMultipartUpload"},
      {"ListParts", "s3:ListMultipartUploadParts"},
  }};
  if (denial.bucket.empty()) return "s3:ListAllMyBuckets";
  if (IsDirectoryBucket(denial.bucket)) return "s3express:CreateSession";  // it covers all of them
  if (denial.verb == "LIST") return "s3:ListBucket";
  if (IsWrite(denial.verb)) return "s3:PutObject";
  for (const auto& [verb, action] : kOthers) {
    if (verb == denial.verb) return action;
  }
  return "s3:GetObject";
}

/// Returns the word after "not authorized to perform:", as AWS and MinIO write it.
std::string_view NamedAction(std::string_view message) {
  constexpr std::string_view kBefore = "not authorized to perform: ";
  const size_t at = message.find(kBefore);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = message.substr(at + kBefore.size());
  const auto end = std::find_if(rest.begin(), rest.end(), [](char c) {
    return !absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != ':' && c != '*';
  });
  const std::string_view action = rest.substr(0, static_cast<size_t>(end - rest.begin()));
  return HasText(action, ":") ? action : std::string_view();
}

std::string_view NamedKey(std::string_view message) {
  const size_t resource = message.find("resource");
  const size_t at = resource == std::string_view::npos ? resource : message.find("arn:aws", resource);
  if (at == std::string_view::npos || !HasText(message.substr(at), ":kms:")) return {};
  const std::string_view rest = message.substr(at);
  return rest.substr(0, rest.find_first_of(" \"'\t\r\n"));
}

std::string Resource(const S3Denial& denial) {
  if (denial.bucket.empty()) return "*";
  return denial.key.empty() || denial.verb == "LIST" ? BucketResource(denial.bucket)
                                                     : ObjectResource(denial.bucket, denial.key);
}

/// Returns the remedy for the kind of policy that has denied it explicitly; "" if the message does not say.
std::string PolicyRemedy(const S3Denial& denial, const std::string& action) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kOwners = {{
      {"service control policy", "a service control policy (SCP) of the organization denies {}: ask its administrator"},
      {"resource control policy",
       "a resource control policy (RCP) of the organization denies {}: ask its administrator"},
      {"permissions boundary", "the permissions boundary of this user or role denies {}: ask its administrator"},
      {"session policy", "the session policy with which the role was assumed denies {}: assume it with a wider one"},
      {"VPC endpoint policy",
       "the policy of the VPC endpoint denies {}: add it there, or take another way to the store"},
      {"identity-based policy", "a policy of this user or role denies {}: ask the administrator of the account"},
  }};
  if (!HasText(denial.message, "explicit deny")) return {};
  for (const auto& [kind, remedy] : kOwners) {
    if (HasText(denial.message, kind)) return fmt::format(fmt::runtime(remedy), action);
  }
  if (IsWrite(denial.verb) && !denial.encrypts) {
    return fmt::format("the bucket's policy denies {}: if it demands encryption with a key of KMS, {}", action,
                       kSetEncryption);
  }
  return fmt::format(
      "the bucket's policy denies {}: ask the owner of the bucket, or meet its conditions (network, VPC "
      "endpoint, TLS, encryption)",
      action);
}

/// Returns the remedy of refusals that have a cause of their own, whatever the permissions are.
std::string_view SpecialRemedy(const S3Denial& denial) {
  if (denial.code == "AllAccessDisabled") {
    return "all access to this bucket is disabled: check its name, which may be one that AWS has reserved, or ask its "
           "owner";
  }
  if (denial.code == "AccountProblem" || denial.code == "NotSignedUp" || denial.code == "UserDisable" ||
      denial.code == "UserDisabled" || denial.code == "AccountInactive" || denial.code == "UserSuspended" ||
      denial.code == "AccountSuspended" || denial.code == "AccountDisabled") {
    return "the account cannot use the store, whatever its permissions are: check its state and its bills with the "
           "provider";
  }
  if (denial.code == "UnauthorizedAccess" || denial.code == "UnauthorizedAccessError") {
    return "in China, an account needs an ICP recordal for access to its buckets: ask the provider for it";
  }
  if (denial.code == "InvalidPayer") return "the account that is to pay cannot: check its state with the provider";
  if (denial.code == "SecondLevelDomainForbidden" || HasText(denial.message, "virtual hosted style")) {
    return "the store wants the bucket in the host's name: set addressing_style = virtual below 's3 =' in the profile "
           "(or MILLRACE_S3_ADDRESSING_STYLE=virtual)";
  }
  if (denial.code == "ObjectLocked" || HasText(denial.message, "object lock") ||
      HasText(denial.message, "Object Lock") || HasText(denial.message, "WORM")) {
    return "Object Lock protects this version: wait until its retention or legal hold ends, or ask for "
           "s3:BypassGovernanceRetention";
  }
  if (HasText(denial.message, "cap exceeded")) {
    return "a cap of the account is reached, whatever its permissions are: raise it with the provider, or wait for its "
           "next period";
  }
  if (HasText(denial.message, "equest has expired")) {
    return "the signature is too old: set this machine's clock (NTP)";
  }
  return {};
}

}  // namespace

std::string PermissionOf(const S3Denial& denial) {
  const std::string_view named = NamedAction(denial.message);
  return std::string(named.empty() ? ActionOfVerb(denial) : named);
}

std::string_view RemedyOfRequest(int http_status, std::string_view message) {
  if (http_status == 400 && HasText(message, "stored using a form of Server Side Encryption")) {
    return "the object is encrypted with a key of its writer (SSE-C), which is not sent here: copy it to the store's "
           "own "
           "encryption, as by `aws s3 cp` with --sse-c-copy-source";
  }
  if (http_status == 400 && HasText(message, "must be made over a secure connection"))
    return "objects that KMS encrypts are read and written over TLS: give an endpoint with https:// (AWS_ENDPOINT_URL)";
  return {};
}

std::string RemedyOfDenial(const S3Denial& denial) {
  if (const std::string_view special = SpecialRemedy(denial); !special.empty()) return std::string(special);
  if (denial.anonymous) {
    return fmt::format(
        "it is not public: send signed requests (unset MILLRACE_S3_ANONYMOUS, omit --no-sign-request) "
        "with credentials that have {}",
        PermissionOf(denial));
  }
  const std::string action = PermissionOf(denial);
  if (std::string remedy = PolicyRemedy(denial, action); !remedy.empty()) return remedy;
  const bool about_key =
      action.starts_with("kms:") || HasText(denial.message, "ciphertext refers to") || HasText(denial.message, "KMS");
  if (about_key) {
    const std::string_view key = NamedKey(denial.message);
    return fmt::format("these credentials have no permission for the key of KMS: they need {} on {}",
                       action.starts_with("kms:") ? action
                       : IsWrite(denial.verb)     ? "kms:GenerateDataKey and kms:Decrypt"
                                                  : "kms:Decrypt",
                       key.empty() ? "the key that encrypts the object" : key);
  }
  std::string remedy =
      fmt::format("these credentials have no permission for it: they need {} on {}", action, Resource(denial));
  if (IsDirectoryBucket(denial.bucket)) return remedy;
  // If the right to list is missing, keys that do not exist look like this as well.
  const bool reads_object = denial.verb == "GET" || denial.verb == "HEAD";
  if (reads_object && !denial.key.empty()) {
    remedy += fmt::format("; or the object does not exist, which the store reports only with s3:ListBucket on {}",
                          BucketResource(denial.bucket));
  }
  if (denial.verb == "LIST" && !denial.bucket.empty()) {
    remedy += "; objects that are named whole, also by braces and lists of URIs, can be read without it";
  }
  if (!NamedAction(denial.message).empty()) return remedy;  // the store has said what is missing
  if (IsWrite(denial.verb) && !denial.encrypts) {
    remedy += fmt::format("; if the bucket demands encryption with a key of KMS, {}", kSetEncryption);
  }
  if (!denial.requester_pays) remedy += "; if the requester is to pay, set MILLRACE_S3_REQUESTER_PAYS=1";
  return remedy;
}

}  // namespace millrace
