#pragma once

// Made by make_sigv4_vectors.py with botocore 1.44.5; do not edit.

#include <string>
#include <utility>
#include <vector>

namespace millrace {

inline constexpr char kVectorAccessKey[] = "MILLRACEEXAMPLE";
inline constexpr char kVectorSecretKey[] = "made+up/secret=for&vectors";
inline constexpr char kVectorTime[] = "2026-01-31T23:59:58Z";

struct SigV4Vector {
  const char* method;
  const char* key;
  const char* target;
  std::vector<std::pair<std::string, std::string>> headers;
  const char* body;
  const char* token;
  const char* region;
  const char* authorization;
};

inline const std::vector<SigV4Vector> kSigV4Vectors = {
    {"GET",
     "plain.txt",
     "/bucket/plain.txt",
     {{"Range", "bytes=0-9"}},
     "",
     "",
     "us-east-1",
     "AWS4-HMAC-SHA256 Credential=MILLRACEEXAMPLE/20260131/us-east-1/s3/aws4_request, "
     "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, "
     "Signature=7c932109579a7e735332490a65fb8306a4a2ff0400e118c003d0996aa72df30a"},
    {"GET",
     "a b+c%d/e&f=g?h#i",
     "/bucket/a%20b%2Bc%25d/e%26f%3Dg%3Fh%23i",
     {},
     "",
     "",
     "us-east-1",
     "AWS4-HMAC-SHA256 Credential=MILLRACEEXAMPLE/20260131/us-east-1/s3/aws4_request, "
     "SignedHeaders=host;x-amz-content-sha256;x-amz-date, "
     "Signature=aa1d9cd9ce011d28a4a60303ac5aa9074fadcbe0c7ab8d656dd60028516f289c"},
    {"GET",
     "no/../normal//form/./",
     "/bucket/no/../normal//form/./",
     {},
     "",
     "",
     "eu-west-1",
     "AWS4-HMAC-SHA256 Credential=MILLRACEEXAMPLE/20260131/eu-west-1/s3/aws4_request, "
     "SignedHeaders=host;x-amz-content-sha256;x-amz-date, "
     "Signature=4960e08814389232933bd3a3faa7b5f2290ca73770977b023635a448f7d63b85"},
    {"GET",
     "Grüße/日本/🌊",
     "/bucket/Gr%C3%BC%C3%9Fe/%E6%97%A5%E6%9C%AC/%F0%9F%8C%8A",
     {},
     "",
     "",
     "us-east-1",
     "AWS4-HMAC-SHA256 Credential=MILLRACEEXAMPLE/20260131/us-east-1/s3/aws4_request, "
     "SignedHeaders=host;x-amz-content-sha256;x-amz-date, "
     "Signature=80df285b54ebfc76bdfd88b04a584a6e229131c19362ed29090e262de1d1acd7"},
    {"GET",
     "~tilde-._!*'()@:,;$",
     "/bucket/~tilde-._%21%2A%27%28%29%40%3A%2C%3B%24",
     {},
     "",
     "",
     "us-east-1",
     "AWS4-HMAC-SHA256 Credential=MILLRACEEXAMPLE/20260131/us-east-1/s3/aws4_request, "
     "SignedHeaders=host;x-amz-content-sha256;x-amz-date, "
     "Signature=4e6879a4716f766ab859149f6b4189a2440fd3a6104a97dd0bf24fa347d871d5"},
    {"HEAD",
     "token",
     "/bucket/token",
     {{"If-Match", "\"abc\""}},
     "",
     "a/session+token==",
     "us-east-1",
     "AWS4-HMAC-SHA256 Credential=MILLRACEEXAMPLE/20260131/us-east-1/s3/aws4_request, "
     "SignedHeaders=host;if-match;x-amz-content-sha256;x-amz-date;x-amz-security-token, "
     "Signature=f9ca03515d0829d03dce2912d9fc0109f66d82a1f3dedf14b602b7e6e6fc39de"},
    {"GET",
     "",
     "/bucket?list-type=2&prefix=a%20b%2F%2B~&delimiter=%2F&max-keys=2",
     {},
     "",
     "",
     "us-east-1",
     "AWS4-HMAC-SHA256 Credential=MILLRACEEXAMPLE/20260131/us-east-1/s3/aws4_request, "
     "SignedHeaders=host;x-amz-content-sha256;x-amz-date, "
     "Signature=ca541ca642f444bd757364b39134c8da012f1c62f3ac91847b18722d04cc84df"},
    {"GET",
     "",
     "/bucket?continuation-token=1%2Fx%2By%3D%3D&list-type=2&encoding-type=url",
     {},
     "",
     "",
     "us-east-1",
     "AWS4-HMAC-SHA256 Credential=MILLRACEEXAMPLE/20260131/us-east-1/s3/aws4_request, "
     "SignedHeaders=host;x-amz-content-sha256;x-amz-date, "
     "Signature=a8203517ffb6965733249d32fc849d00d6c2fe6992b7ee62f92e3c0f3f01d263"},
    {"POST",
     "up",
     "/bucket/up?uploads=",
     {{"Content-Type", "image/jpeg"}},
     "",
     "",
     "us-east-1",
     "AWS4-HMAC-SHA256 Credential=MILLRACEEXAMPLE/20260131/us-east-1/s3/aws4_request, "
     "SignedHeaders=content-type;host;x-amz-content-sha256;x-amz-date, "
     "Signature=249b086a19a1560039be0cb7e258cb0851fbef84cd580b13f64531d567d3b17a"},
    {"PUT",
     "up",
     "/bucket/up?partNumber=10&uploadId=VX~p.x-_%2F%2B",
     {},
     "part",
     "",
     "us-east-1",
     "AWS4-HMAC-SHA256 Credential=MILLRACEEXAMPLE/20260131/us-east-1/s3/aws4_request, "
     "SignedHeaders=host;x-amz-content-sha256;x-amz-date, "
     "Signature=44b801ba954dc2de799af6d07f0e6c22d5b450bdf5724d2e781994c78023ac91"},
    {"PUT",
     "space",
     "/bucket/space",
     {{"x-amz-meta-note", "  two  spaces   within  "}, {"Content-Type", "text/plain"}},
     "body",
     "",
     "us-west-2",
     "AWS4-HMAC-SHA256 Credential=MILLRACEEXAMPLE/20260131/us-west-2/s3/aws4_request, "
     "SignedHeaders=content-type;host;x-amz-content-sha256;x-amz-date;x-amz-meta-note, "
     "Signature=7b457af5e330ed7c8bc598552fcc84745625271c4d6fd70cfcf902f8e4e94c5e"},
    {"DELETE",
     "gone",
     "/bucket/gone",
     {},
     "",
     "",
     "cn-north-1",
     "AWS4-HMAC-SHA256 Credential=MILLRACEEXAMPLE/20260131/cn-north-1/s3/aws4_request, "
     "SignedHeaders=host;x-amz-content-sha256;x-amz-date, "
     "Signature=c8908978a48410f893c51f922325b0b0667843e328ac64ed41dad3c6d9f36191"},
};

}  // namespace millrace
