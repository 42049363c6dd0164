#include "base/named_hash.h"

#include <gtest/gtest.h>

#include <string>

namespace millrace {
namespace {

// Python's hashlib and xxhash give these of b"millrace".
TEST(NamedHash, AsPythonWritesThem) {
  const std::pair<const char*, const char*> kExpected[] = {
      {"md5", "78bce37dc29d160a3e6737d97c6f0275"},
      {"sha1", "bb8585afdfb7db14694fefe63b578096821c398b"},
      {"sha224", "7048991e3280500438aa5920c66d2533eb4b8e3f0e56302f2e69da32"},
      {"sha256", "590c910f43b1429c4ca7dd9717aabfa516bb4d0fd8dce868bb636a5a89cb9135"},
      {"sha384", "eb067fea995790d92642ef512a977bbb56301d8340a3c5f06a6b8869171419d177b6a9cf7ee8bf0a6c2a0d657fdb6744"},
      {"sha512",
       "f40636690346ce9b5ded8770482a0fa09816fa8f04178531c53235ce3d81056302fdff2bdcdedb1e16355cf5f1d4ef99af3788f5d5a1d50"
       "be06c51ba13fbe793"},
      {"sha3_224", "bd6428652e4ad6d2b1bbb3cebea054864fc7c7be8d85fd962cb7abcb"},
      {"sha3_256", "5ca786d877a552787bee3ee8da1833a49b61350fe11e5c4cbe09bb618580770f"},
      {"sha3_384", "302f4ec6b99124a224fc05f0e3a7346dcff97c75d35dea9156dbb32d02dd1561bb359fe2838d88a4858c67de46025df0"},
      {"sha3_512",
       "256f55b2312ed30baaf78559b6c3cc18490618fb9f1a760121120f3a460e3bf9889ddfb7bb26154867a522179bfffb1b6c81a1cc3f95d07"
       "bf26ed78eaf1078f6"},
      {"blake2b",
       "781ffd12098532ada36c144d102a5b1e33572c021b99c12cf8e44989386fd683f84dcd0f86b6cfdde4a12f06b35b0919fe9e8e81796bed6"
       "d6936d512ba6402b7"},
      {"blake2s", "72568bc479270e9d560f1c15a5a9b5e24388618604053e239455c6ed761b29a2"},
      {"xxh32", "42daf8de"},
      {"xxh64", "1a8807b3c9996a19"},
      {"xxh3_64", "0f798300cb96eca5"},
      {"xxh128", "164a3e261dc69aaa8150a1435f1760b2"},
      {"xxh3_128", "164a3e261dc69aaa8150a1435f1760b2"},
  };
  for (const auto& [name, digest] : kExpected) {
    const auto hash = NamedHash::Make(name);
    ASSERT_NE(hash, nullptr) << name;
    hash->Update(AsBytes("mill"));
    hash->Update({});
    hash->Update(AsBytes("race"));
    EXPECT_EQ(hash->Finish(), digest) << name;
  }
  for (const char* unknown : {"", "sha", "SHA1", "crc32", "shake_128"}) EXPECT_EQ(NamedHash::Make(unknown), nullptr);
}

}  // namespace
}  // namespace millrace
