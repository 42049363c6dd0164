#pragma once

#include <string>
#include <string_view>

/// Finds the permission or setting that helps against HTTP 403. Pure.

namespace millrace {

/// Describes a request that the store has refused with a status of permission.
struct S3Denial {
  std::string_view verb;     // of the exchange: "GET", "LIST", "CopyObject"
  std::string_view code;     // <Code> of the answer; "" without a body
  std::string_view message;  // its <Message>
  std::string_view bucket;   // "" for requests about the account
  std::string_view key;      // "" for requests about the bucket
  bool anonymous = false;
  bool requester_pays = false;
  bool encrypts = false;  // MILLRACE_S3_SSE is set
};

/// Returns the action of IAM that the request needs: the one that the message names, else the one of the verb.
std::string PermissionOf(const S3Denial& denial);

/// Returns one or two clauses for a message.
std::string RemedyOfDenial(const S3Denial& denial);

/// Returns the remedy of a refusal that is about the request and not about permissions, by its message; "" for others.
std::string_view RemedyOfRequest(int http_status, std::string_view message);

}  // namespace millrace
