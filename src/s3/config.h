#pragma once

#include <string>

#include "aws/settings.h"
#include "base/status.h"
#include "s3/client.h"

namespace millrace {

/// Reads the settings of S3 as the AWS tools do (docs/s3.md). The environment wins over profile files:
///
///   AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL      else `endpoint_url` below `s3 =` in the section [services NAME] that
///                                              `services = NAME` of the profile names, else `endpoint_url` of the
///                                              profile; else AWS
///   AWS_IGNORE_CONFIGURED_ENDPOINT_URLS        else `ignore_configured_endpoint_urls`: true ignores all of these
///   AWS_REGION, AWS_DEFAULT_REGION             else `region`; else us-east-1
///   AWS_CA_BUNDLE                              else `ca_bundle`
///   HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY    as net/proxy.h has it
///   AWS_MAX_ATTEMPTS                           else `max_attempts`: requests in all for one that fails, 1 to 1000
///   AWS_REQUEST_CHECKSUM_CALCULATION           else `request_checksum_calculation`: when_supported (the default) sends
///                                              a checksum with every upload, when_required none
///   AWS_RESPONSE_CHECKSUM_VALIDATION           else `response_checksum_validation`: the same for checking downloads
///   AWS_USE_DUALSTACK_ENDPOINT                 else `use_dualstack_endpoint`, also below `s3 =`: true or false
///   AWS_USE_FIPS_ENDPOINT                      else `use_fips_endpoint`: true or false
///   AWS_S3_USE_ARN_REGION                      else `use_arn_region` below `s3 =`: false refuses access points of
///   other
///                                              regions
///   MILLRACE_S3_CHECKSUM_ALGORITHM             of uploads: CRC32C (the default) or CRC64NVME
///   MILLRACE_S3_SSE                            encryption of new objects: aws:kms, aws:kms:dsse or AES256
///   MILLRACE_S3_SSE_KMS_KEY_ID                 the key of KMS for it
///   MILLRACE_S3_ADDRESSING_STYLE               else `addressing_style` below `s3 =`: auto, virtual or path
///   MILLRACE_S3_REQUESTER_PAYS=1               sends x-amz-request-payer
///   -                                          `payload_signing_enabled` below `s3 =`: whether uploads are signed byte
///   by
///                                              byte; by default over plain HTTP only, except to this machine
///   AWS_PROFILE                                the profile, else "default"
///   AWS_SHARED_CREDENTIALS_FILE, AWS_CONFIG_FILE    else ~/.aws/credentials and ~/.aws/config
///   MILLRACE_S3_ANONYMOUS=1                    no credentials: unsigned requests
///
/// Credentials come from the first of these that is configured (aws/credential_chain.h):
///
///   AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN
///   the profile's role_arn with source_profile or credential_source
///   AWS_WEB_IDENTITY_TOKEN_FILE, AWS_ROLE_ARN, AWS_ROLE_SESSION_NAME
///   the profile: role_arn with web_identity_token_file; sso_session or sso_start_url with sso_account_id or
///     sso_role_name; static keys; credential_process
///   AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or _FULL_URI, AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE or _TOKEN
///   the metadata service of an EC2 instance, unless AWS_EC2_METADATA_DISABLED=true; its address is
///     AWS_EC2_METADATA_SERVICE_ENDPOINT, or by _ENDPOINT_MODE=IPv6; AWS_METADATA_SERVICE_TIMEOUT and
///     AWS_METADATA_SERVICE_NUM_ATTEMPTS bound the wait for it
///
/// AWS_ENDPOINT_URL_STS, AWS_ENDPOINT_URL_SSO and AWS_ENDPOINT_URL_SSO_OIDC are the services of roles and SSO. Only
/// keys that are in settings are read here; S3Client fetches the others at the first request, and again ahead of their
/// end, and reads settings and files again for it.
///
/// That no credentials are found is no error here; the first request fails with the remedy. InvalidArgument for
/// settings that contradict each other or cannot be read (a profile that does not exist, a key without its secret, a
/// broken URL).
absl::StatusOr<S3Config> LoadS3Config();

/// Returns the principal of the credentials that LoadS3Config finds, as CredentialSource::Principal does; "" for
/// unsigned requests, "unknown" if there are none. Programs with the same principal may read the same data.
std::string S3Principal(const AwsEnvironment& environment);

/// Loads it from `environment`, for tests.
absl::StatusOr<S3Config> LoadS3Config(const AwsEnvironment& environment);

}  // namespace millrace
