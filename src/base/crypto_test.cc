#include "base/crypto.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>

#include "base/hmac_key.h"

namespace millrace {
namespace {

// The vectors are published in FIPS 180-2, RFC 4231, RFC 1321, RFC 3720.
TEST(Crypto, PublishedVectors) {
  EXPECT_EQ(HexEncode(Sha1(AsBytes("abc"))), "a9993e364706816aba3e25717850c26c9cd0d89d");
  EXPECT_EQ(HexEncode(Sha256(AsBytes("abc"))), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(HexEncode(HmacSha256(AsBytes("Jefe"), AsBytes("what do ya want for nothing?"))),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(HexEncode(HmacSha256(AsBytes(std::string(131, '\xaa')),  // RFC 4231, case 6
                                 AsBytes("Test Using Larger Than Block-Size Key - Hash Key First"))),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  EXPECT_EQ(HexEncode(Md5(AsBytes("message digest"))), "f96b697d7cb7938d525a2f31aaf161d0");
  EXPECT_EQ(Crc32c(AsBytes("123456789")), 0xe3069283u);
  EXPECT_EQ(Crc32c(AsBytes("")), 0u);
}

TEST(Crypto, Crc32cContinues) {
  EXPECT_EQ(Crc32c(AsBytes("6789"), Crc32c(AsBytes("12345"))), Crc32c(AsBytes("123456789")));
}

TEST(Crypto, Xxh3StreamIsIndependentOfPieces) {
  Xxh3Stream whole;
  whole.Update(AsBytes("the millrace drives the wheel"));
  Xxh3Stream pieces;
  pieces.Update(AsBytes("the millrace "));
  pieces.Update(AsBytes("drives the wheel"));
  EXPECT_EQ(whole.Digest(), pieces.Digest());
  // This is XXH3_128bits of nothing, as xxHash documents it.
  EXPECT_EQ(Xxh3Stream().Digest().Hex(), "99aa06d3014798d86001c324468d497f");
}

// Each frees the state that it points to.
static_assert(!std::is_copy_constructible_v<Md5Stream> && !std::is_copy_assignable_v<Md5Stream>);
static_assert(!std::is_copy_constructible_v<Sha256Stream> && !std::is_copy_assignable_v<Sha256Stream>);
static_assert(!std::is_copy_constructible_v<Xxh3Stream> && !std::is_copy_assignable_v<Xxh3Stream>);

TEST(Crypto, Uint128Carries) {
  Uint128 sum{0, UINT64_MAX};
  sum += Uint128{1, 1};
  EXPECT_EQ(sum.Hex(), "00000000000000020000000000000000");
}

TEST(Crypto, EqualConstantTime) {
  EXPECT_TRUE(EqualConstantTime("abc", "abc"));
  EXPECT_FALSE(EqualConstantTime("abc", "abd"));
  EXPECT_FALSE(EqualConstantTime("abc", "abcd"));
}

Sha256Digest OpensslHmac(const std::string& key, const std::string& text) {
  Sha256Digest digest;
  size_t size = 0;
  EVP_Q_mac(nullptr, "HMAC", nullptr, "SHA256", nullptr, key.data(), key.size(),
            reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data(), digest.size(), &size);
  return digest;
}

TEST(Crypto, AKeySignsManyTexts) {
  for (const int size : {0, 3, 64, 65, 200}) {  // a block of the hash has 64
    const std::string key(static_cast<size_t>(size), 'k');
    const HmacKey signer(AsBytes(key));
    for (const int begins : {0, 6, 63, 64, 70, 130}) {
      const std::string beginning(static_cast<size_t>(begins), 'b');
      const HmacKey after = signer.After(AsBytes(beginning));
      for (const std::string& text : {std::string("text"), std::string(), std::string(1000, 't')}) {
        EXPECT_EQ(signer.Sign(AsBytes(text)), OpensslHmac(key, text));
        EXPECT_EQ(after.Sign(AsBytes(text)), OpensslHmac(key, beginning + text));
      }
    }
  }
}

}  // namespace
}  // namespace millrace
