#include "s3/error.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "base/status.h"

namespace millrace {
namespace {

using Code = absl::StatusCode;

struct Expected {
  Code code;
  S3Action action;
};

// The meaning of each code of S3 is written down a second time: a change of the table must be meant.
const std::map<std::string, Expected> kByCode = {
    {"NoSuchKey", {Code::kNotFound, S3Action::kFail}},
    {"NoSuchBucket", {Code::kNotFound, S3Action::kFail}},
    {"NoSuchUpload", {Code::kNotFound, S3Action::kFail}},
    {"AccessDenied", {Code::kPermissionDenied, S3Action::kFail}},
    {"AllAccessDisabled", {Code::kPermissionDenied, S3Action::kFail}},
    {"AccountProblem", {Code::kPermissionDenied, S3Action::kFail}},
    {"InvalidAccessKeyId", {Code::kUnauthenticated, S3Action::kFail}},
    {"SignatureDoesNotMatch", {Code::kUnauthenticated, S3Action::kFail}},
    {"InvalidSecurity", {Code::kUnauthenticated, S3Action::kFail}},
    {"ExpiredToken", {Code::kUnauthenticated, S3Action::kRefresh}},
    {"InvalidToken", {Code::kUnauthenticated, S3Action::kRefresh}},
    {"TokenRefreshRequired", {Code::kUnauthenticated, S3Action::kRefresh}},
    {"RequestTimeTooSkewed", {Code::kUnauthenticated, S3Action::kFixClock}},
    {"AuthorizationHeaderMalformed", {Code::kUnauthenticated, S3Action::kRedirect}},
    {"PermanentRedirect", {Code::kInvalidArgument, S3Action::kRedirect}},
    {"TemporaryRedirect", {Code::kInvalidArgument, S3Action::kRedirect}},
    {"IllegalLocationConstraintException", {Code::kInvalidArgument, S3Action::kRedirect}},
    {"PreconditionFailed", {Code::kFailedPrecondition, S3Action::kFail}},
    {"InvalidRange", {Code::kOutOfRange, S3Action::kFail}},
    {"InvalidObjectState", {Code::kFailedPrecondition, S3Action::kFail}},
    {"BucketAlreadyExists", {Code::kAlreadyExists, S3Action::kFail}},
    {"BucketAlreadyOwnedByYou", {Code::kAlreadyExists, S3Action::kFail}},
    {"ConditionalRequestConflict", {Code::kUnavailable, S3Action::kRetry}},
    {"OperationAborted", {Code::kUnavailable, S3Action::kRetry}},
    {"QuotaExceeded", {Code::kResourceExhausted, S3Action::kFail}},
    {"XMinioAdminBucketQuotaExceeded", {Code::kResourceExhausted, S3Action::kFail}},
    {"EntityTooLarge", {Code::kInvalidArgument, S3Action::kFail}},
    {"ExpiredTokenException", {Code::kUnauthenticated, S3Action::kRefresh}},
    {"BadDigest", {Code::kDataLoss, S3Action::kRetry}},
    {"XAmzContentSHA256Mismatch", {Code::kDataLoss, S3Action::kRetry}},
    {"IncompleteBody", {Code::kUnavailable, S3Action::kRetry}},
    {"RequestTimeout", {Code::kUnavailable, S3Action::kRetry}},
    {"InternalError", {Code::kUnavailable, S3Action::kRetry}},
    {"SlowDown", {Code::kUnavailable, S3Action::kThrottle}},
    {"ServiceUnavailable", {Code::kUnavailable, S3Action::kThrottle}},
    {"RequestLimitExceeded", {Code::kUnavailable, S3Action::kThrottle}},
    {"BandwidthLimitExceeded", {Code::kUnavailable, S3Action::kThrottle}},
    {"Throttling", {Code::kUnavailable, S3Action::kThrottle}},
    {"ThrottlingException", {Code::kUnavailable, S3Action::kThrottle}},
    {"TooManyRequests", {Code::kUnavailable, S3Action::kThrottle}},
    {"KMS.DisabledException", {Code::kFailedPrecondition, S3Action::kFail}},
    {"KMS.NotFoundException", {Code::kFailedPrecondition, S3Action::kFail}},
    {"KMS.KMSInvalidStateException", {Code::kFailedPrecondition, S3Action::kFail}},
    {"KMS.InvalidStateException", {Code::kFailedPrecondition, S3Action::kFail}},
    {"KMS.InvalidKeyUsageException", {Code::kFailedPrecondition, S3Action::kFail}},
    {"NotImplemented", {Code::kInvalidArgument, S3Action::kFail}},
};

const std::map<int, Expected> kByStatus = {
    {301, {Code::kInvalidArgument, S3Action::kRedirect}},
    {302, {Code::kInvalidArgument, S3Action::kRedirect}},
    {307, {Code::kInvalidArgument, S3Action::kRedirect}},
    {308, {Code::kInvalidArgument, S3Action::kRedirect}},
    {401, {Code::kUnauthenticated, S3Action::kFail}},
    {403, {Code::kPermissionDenied, S3Action::kFail}},
    {404, {Code::kNotFound, S3Action::kFail}},
    {405, {Code::kInvalidArgument, S3Action::kFail}},
    {408, {Code::kUnavailable, S3Action::kRetry}},
    {409, {Code::kAlreadyExists, S3Action::kFail}},
    {412, {Code::kFailedPrecondition, S3Action::kFail}},
    {413, {Code::kInvalidArgument, S3Action::kFail}},
    {416, {Code::kOutOfRange, S3Action::kFail}},
    {429, {Code::kUnavailable, S3Action::kThrottle}},
    {500, {Code::kUnavailable, S3Action::kRetry}},
    {501, {Code::kInvalidArgument, S3Action::kFail}},
    {502, {Code::kUnavailable, S3Action::kRetry}},
    {503, {Code::kUnavailable, S3Action::kThrottle}},
    {504, {Code::kUnavailable, S3Action::kRetry}},
    {507, {Code::kResourceExhausted, S3Action::kFail}},
};

void ExpectVerdict(int status, std::string_view code, Expected expected) {
  const S3Verdict verdict = ClassifyS3Error(status, code);
  EXPECT_EQ(verdict.code, expected.code) << status << " " << code;
  EXPECT_EQ(verdict.action, expected.action) << status << " " << code;
}

TEST(S3ErrorTable, EveryCodeMeansWhatItShouldWhateverItsStatus) {
  for (const auto& [code, expected] : kByCode) {
    for (const int status : {200, 301, 400, 403, 404, 409, 500, 503}) ExpectVerdict(status, code, expected);
  }
}

TEST(S3ErrorTable, EveryStatusWithoutAKnownCode) {
  for (int status = 200; status < 600; ++status) {
    Expected expected = {Code::kUnavailable, S3Action::kRetry};
    if (status >= 400 && status < 500) expected = {Code::kInvalidArgument, S3Action::kFail};
    if (const auto at = kByStatus.find(status); at != kByStatus.end()) expected = at->second;
    ExpectVerdict(status, "", expected);
    ExpectVerdict(status, "SomethingNew", expected);
  }
}

TEST(S3ErrorTable, HasNoOtherRules) {
  EXPECT_EQ(S3ErrorRules().size(), kByCode.size() + kByStatus.size());
  for (const S3ErrorRule& rule : S3ErrorRules()) {
    EXPECT_TRUE(rule.code.empty() ? kByStatus.contains(rule.status) : kByCode.contains(std::string(rule.code)));
  }
}

TEST(S3ErrorTable, ServerErrorsNeverMeanThatSomethingIsMissing) {
  for (int status = 500; status < 600; ++status) {
    const Code code = ClassifyS3Error(status, "").code;
    EXPECT_NE(code, Code::kNotFound);
    EXPECT_NE(code, Code::kPermissionDenied);
  }
}

TEST(S3ErrorTable, WhatTheUserCanFixHasARemedy) {
  for (const S3ErrorRule& rule : S3ErrorRules()) {
    const Code code = rule.verdict.code;
    if (code == Code::kUnauthenticated || code == Code::kPermissionDenied || code == Code::kResourceExhausted ||
        code == Code::kNotFound) {
      EXPECT_FALSE(rule.verdict.remedy.empty()) << rule.status << rule.code;
    }
  }
}

TEST(S3Code, StaysWithTheErrorWhateverIsPutInFrontOfIt) {
  absl::Status status = absl::NotFoundError("GET failed");
  EXPECT_EQ(S3CodeOf(status), "");
  SetS3Code(&status, "NoSuchKey");
  EXPECT_EQ(S3CodeOf(Annotate(Annotate(status, "s3://b/k"), "indexing")), "NoSuchKey");
}

TEST(TransportErrors, AreRetriedButForThoseThatStay) {
  const std::map<HttpErrorKind, Expected> table = {
      {HttpErrorKind::kConnect, {Code::kUnavailable, S3Action::kRetry}},
      {HttpErrorKind::kTls, {Code::kUnavailable, S3Action::kFail}},
      {HttpErrorKind::kProxy, {Code::kUnavailable, S3Action::kFail}},
      {HttpErrorKind::kStale, {Code::kUnavailable, S3Action::kRetry}},
      {HttpErrorKind::kReset, {Code::kUnavailable, S3Action::kRetry}},
      {HttpErrorKind::kClosedEarly, {Code::kUnavailable, S3Action::kRetry}},
      {HttpErrorKind::kTimeout, {Code::kUnavailable, S3Action::kRetry}},
      {HttpErrorKind::kMalformed, {Code::kUnavailable, S3Action::kRetry}},
      {HttpErrorKind::kTooLarge, {Code::kResourceExhausted, S3Action::kFail}},
      {HttpErrorKind::kRefused, {Code::kUnavailable, S3Action::kRetry}},
      {HttpErrorKind::kCancelled, {Code::kCancelled, S3Action::kFail}},
      {HttpErrorKind::kNone, {Code::kInternal, S3Action::kFail}},
  };
  for (const auto& [kind, expected] : table) {
    EXPECT_EQ(ClassifyTransportError(kind).code, expected.code);
    EXPECT_EQ(ClassifyTransportError(kind).action, expected.action);
  }
}

}  // namespace
}  // namespace millrace
