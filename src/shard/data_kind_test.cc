#include "shard/data_kind.h"

#include <gtest/gtest.h>

#include <string>

#include "shard/side_files.h"

namespace millrace {
namespace {

TEST(DataKind, OfShardsByName) {
  EXPECT_EQ(ShardKind("a/b.tar"), DataKind::kTar);
  EXPECT_EQ(ShardKind("x.tfrecord"), DataKind::kTfRecord);
  EXPECT_EQ(ShardKind("x.tfrecords"), DataKind::kTfRecord);
  EXPECT_EQ(ShardKind("v1.0/train.tfrecord-00000-of-00064"), DataKind::kTfRecord);
  EXPECT_EQ(ShardKind("mnist-train.tfrecords-00000-of-00001"), DataKind::kTfRecord);
  EXPECT_EQ(ShardKind("train-00007-of-01024"), DataKind::kTfRecord);
  for (const char* name : {"coco_train.record-00000-of-00100", "a.record", "a.tfr", "train.tfrecords.0", "X.TFRECORD",
                           "a.TFRecord-00000-of-00002"})
    EXPECT_EQ(ShardKind(name), DataKind::kTfRecord) << name;
  EXPECT_EQ(ShardKind("S.TAR"), DataKind::kTar);
  EXPECT_EQ(ShardKind("a.Rec"), DataKind::kRecordIo);
  EXPECT_EQ(ShardKind("train.rec"), DataKind::kRecordIo);
  EXPECT_EQ(ShardKind("shard.00000.mds"), DataKind::kMds);
  for (const char* other :
       {"", "tar", "x.jpg", "x.tar/y", "x.array_record-00000-of-00001", "train-0-of-1", "-of-00001",
        "x.tfrecord-of-00001", "train-0000a-of-00001", "x.tfrecord.gz", "x.rec.idx", "x.bin", "x.npy"}) {
    EXPECT_EQ(ShardKind(other), std::nullopt) << other;
  }
}

TEST(DataKind, CompressedShards) {
  EXPECT_EQ(CompressedShard("a/shard.00000.mds.zstd"), "a/shard.00000.mds");
  EXPECT_EQ(CompressedShard("x.tar.gz"), "x.tar");
  EXPECT_EQ(CompressedShard("x.tgz"), "x");
  EXPECT_EQ(CompressedShard("train.tfrecord-00000-of-00064.gz"), "train.tfrecord-00000-of-00064");
  for (const char* tar : {"x.tzst", "x.txz", "x.tbz2", "x.TGZ"}) EXPECT_EQ(CompressedShard(tar), "x") << tar;
  for (const char* end : {".lzma", ".zip", ".lz4", ".GZ", ".Z"})
    EXPECT_EQ(CompressedShard("a/x.tar" + std::string(end)), "a/x.tar") << end;
  EXPECT_EQ(CompressedShard("A.TAR.GZ"), "A.TAR");
  for (const char* other : {"", "x.gz", "x.txt.gz", "x.tar", ".gz", "x.zip", "x.lz4"})
    EXPECT_EQ(CompressedShard(other), "") << other;
}

TEST(DataKind, ShardsWhoseNamesOtherProgramsChanged) {
  for (const char* name : {"a/s.tar?download=true", "x.tgz?raw=1", "x.tfrecord?a=b.c"})
    EXPECT_NE(MisnamedShardAdvice(name).find("query"), std::string_view::npos) << name;
  for (const char* name : {"s.tar.aa", "s.tar.part-00", "s.tar.part1", "s.tar.000", "s.tar.gz.part_03", "S.TGZ.001"})
    EXPECT_NE(MisnamedShardAdvice(name).find("piece"), std::string_view::npos) << name;
  EXPECT_NE(MisnamedShardAdvice("s.tar.1").find("number"), std::string_view::npos);
  for (const char* name : {"", "s.tar", "s.tgz", "s.tar.gz", "s.tar.xz", "s.tar.part", "s.tar.idx", "s.tar.md5", "a.b",
                           "frame.001", "x.jpg?a=b", "a.tar/b.001", "tar.aa", "..", "x.tar.partial"})
    EXPECT_EQ(MisnamedShardAdvice(name), "") << name;
}

TEST(DataKind, FilesThatAreNoShards) {
  EXPECT_NE(ForeignFileAdvice("a/train.parquet").find("millrace pack"), std::string_view::npos);
  EXPECT_NE(ForeignFileAdvice("train.h5").find("h5py"), std::string_view::npos);
  EXPECT_NE(ForeignFileAdvice("train.hdf5").find("h5py"), std::string_view::npos);
  for (const char* lmdb : {"data.mdb", "train/data.mdb", "train/lock.mdb", "train.lmdb"})
    EXPECT_NE(ForeignFileAdvice(lmdb).find("millrace.ShardWriter"), std::string_view::npos) << lmdb;
  for (const char* table : {"a.arrow", "a.feather", "a.avro", "a.orc"})
    EXPECT_NE(ForeignFileAdvice(table).find("Parquet"), std::string_view::npos) << table;
  for (const char* records : {"a.array_record", "train.array_record-00000-of-00001"})
    EXPECT_NE(ForeignFileAdvice(records).find("ArrayRecord"), std::string_view::npos) << records;
  for (const char* other : {"", "parquet", "x.parquet.mds", "h5/x.jpg", "olddata.mdb", "arrow", "x.orc.jpg"})
    EXPECT_EQ(ForeignFileAdvice(other), "") << other;
}

TEST(DataKind, FieldsThatAreNoImages) {
  EXPECT_NE(FieldAdvice("mp4").find("millrace.Bytes('mp4')"), std::string::npos);
  EXPECT_NE(FieldAdvice("left.WAV").find("millrace.Bytes('left.WAV')"), std::string::npos);
  EXPECT_NE(FieldAdvice("npy").find("millrace.Array('npy')"), std::string::npos);
  EXPECT_NE(FieldAdvice("npz").find("io.BytesIO"), std::string::npos);
  EXPECT_NE(FieldAdvice("txt").find("millrace.Text('txt')"), std::string::npos);
  EXPECT_NE(FieldAdvice("json").find("millrace.Json('json')"), std::string::npos);
  EXPECT_NE(FieldAdvice("zip").find("unpack"), std::string::npos);
  for (const char* other : {"", "jpg", "cls", "x", "p4"}) EXPECT_EQ(FieldAdvice(other), "") << other;
}

TEST(DataKind, Companions) {
  EXPECT_TRUE(IsCompanion(DataKind::kMds, "train/index.json"));
  EXPECT_TRUE(IsCompanion(DataKind::kMds, "train/other.json"));
  EXPECT_TRUE(IsCompanion(DataKind::kMds, "train/preview.png"));
  EXPECT_FALSE(IsCompanion(DataKind::kMds, "train/a.mds"));
  EXPECT_FALSE(IsCompanion(DataKind::kTar, "train/a.tfrecord"));
  EXPECT_FALSE(IsCompanion(DataKind::kTar, "train/a.tar.gz"));
  EXPECT_TRUE(IsCompanion(DataKind::kRecordIo, "train.idx"));
  EXPECT_TRUE(IsCompanion(DataKind::kTfRecord, "features.json"));
  EXPECT_TRUE(IsCompanion(DataKind::kTar, "index.json"));
  EXPECT_TRUE(IsCompanion(DataKind::kTar, "a/00000.parquet"));
  EXPECT_TRUE(IsCompanion(DataKind::kTokens, "a_text_document_train_indexmap.npy"));
  EXPECT_FALSE(IsCompanion(DataKind::kRawObjects, "a.json"));
  EXPECT_FALSE(IsCompanion(DataKind::kTokens, "a/b.jpg"));
  EXPECT_TRUE(IsCompanion(DataKind::kTokens, "a/b.json"));
  EXPECT_TRUE(IsCompanion("index.json"));
}

TEST(DataKind, FilesOfOtherPrograms) {
  for (const char* key :
       {"_SUCCESS", "a/_SUCCESS", "_temporary/0/_temporary/attempt_1/part-00001.tfrecord", "a/_temporary/x.jpg",
        "_delta_log/00000.json", "_committed_123", "_started_123", "_metadata", "part-00000.tfrecord.crc",
        "a/x.tar.crc", "a/1.sync-conflict-20240101-120000-ABCDEFG.png", "v1.0_$folder$", "x.tar._COPYING_",
        "beam-temp-out-12/x.tfrecord", "1.0.0.incompleteAB/x.tfrecord", "__magic_job-1/x.tar", "__pycache__/x.pyc",
        "__MACOSX/a.jpg", "a/@eaDir/1.jpg/SYNO_L.jpg"}) {
    EXPECT_TRUE(IsToolFile(key)) << key;
  }
  for (const char* key : {"", "a.jpg", "_background_noise_/1.wav", "__background__/1.jpg", "_temporary.jpg", "1.crc",
                          "1.jpg.crc", "temporary/x.tar", "_unknown_/metadata.jpg"}) {
    EXPECT_FALSE(IsToolFile(key)) << key;
  }
}

TEST(DataKind, PartsOfDownloads) {
  for (const char* key : {"a/1.jpg.part", "1.PNG.crdownload", "Unconfirmed 7.crdownload", "1.tar.aria2", "1.webp.!qB",
                          "1.jpeg.partial", "a.b.png.tmp", "1.jpg.filepart"})
    EXPECT_TRUE(IsPartOfDownload(key)) << key;
  for (const char* key : {"1.part", "1.tmp", "a.jpg/1.part", "1.jpg", "part", "1.json.part", "jpg.part", ""})
    EXPECT_FALSE(IsPartOfDownload(key)) << key;
}

TEST(DataKind, ShardsBelowUnderscores) {
  for (const char* key : {"_tmp1/a.tar", "a/_logs/x/a.tfrecord", "_x/a.tar.gz", "_a/b.parquet", "__x__/a.tar",
                          "_distcp_logs_1/a.txt", "_temporary-1/a.txt"})
    EXPECT_TRUE(IsToolFile(key)) << key;
  for (const char* key : {"_a.tar", "a/_b.tar", "_tmp1/a.jpg", "a_/b.tar", "_/", "_x"})
    EXPECT_FALSE(IsToolFile(key)) << key;
}

TEST(DataKind, Names) {
  EXPECT_EQ(KindName(DataKind::kRawObjects), "raw");
  EXPECT_EQ(KindName(DataKind::kMds), "mds");
  EXPECT_EQ(KindName(kLastDataKind), "tokens");
  EXPECT_EQ(KindTitle(kLastDataKind), "token files");
  EXPECT_EQ(KindTitle(DataKind::kTfRecord), "TFRecord shards");
  EXPECT_EQ(ObjectTitle(DataKind::kTfRecord), "TFRecord shard");
  EXPECT_EQ(ObjectTitle(DataKind::kRawObjects), "raw object");
}

TEST(DataKind, Documents) {
  for (const char* key : {"README.md", "a/LICENSE", "licence.txt", "CITATION.cff", "x/dataset_infos.json", "NOTICE"})
    EXPECT_TRUE(IsDocument(key)) << key;
  for (const char* key : {"a.md", "x/licence.jpg", "README/a.jpg", "readme-0.txt", "labels.txt", "", "a/"})
    EXPECT_FALSE(IsDocument(key)) << key;
}

}  // namespace
}  // namespace millrace
