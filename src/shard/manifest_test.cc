#include "shard/manifest.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Holds a manifest and its rows.
struct Parsed {
  absl::StatusOr<Manifest> manifest;
  std::vector<std::string> rows;
};

Parsed Parse(ManifestFormat format, std::string_view text, const ManifestColumns& columns = {}) {
  struct Row {
    std::string text;
    std::vector<std::pair<uint32_t, std::string>> cells;
  };
  std::vector<Row> rows;
  Parsed parsed{.manifest = ParseManifest(format, text, columns,
                                          [&rows](const Manifest&, const ManifestRow& row) {
                                            Row& kept = rows.emplace_back();
                                            kept.text = fmt::format("{} {}", row.line, row.path);
                                            if (!row.label.empty()) kept.text += fmt::format(" is {}", row.label);
                                            for (const ManifestCell& cell : row.cells)
                                              kept.cells.emplace_back(cell.column, cell.text);
                                            return absl::OkStatus();
                                          }),
                .rows = {}};
  for (Row& row : rows) {
    for (const auto& [number, cell] : row.cells) {
      if (!parsed.manifest.ok()) break;
      const ManifestColumn& column = parsed.manifest->columns[number];
      row.text += fmt::format(" {}={}:{}", column.name, ManifestValueText(column, cell), column.encoding);
    }
    parsed.rows.push_back(std::move(row.text));
  }
  return parsed;
}
std::vector<std::string> Describe(const Parsed& parsed) {
  return parsed.manifest.ok() ? parsed.rows : std::vector{parsed.manifest.status().ToString()};
}
std::vector<std::string> Csv(std::string_view text) {
  return Describe(Parse(ManifestFormat::kCsv, text));
}
std::vector<std::string> JsonOf(std::string_view text) {
  return Describe(Parse(ManifestFormat::kJson, text));
}

TEST(Manifest, CellsBetweenSemicolonsOrTabs) {
  EXPECT_EQ(Csv("path;label;note\na.jpg;1;\"x;y\"\n"), Csv("path,label,note\na.jpg,1,x;y\n"));
  EXPECT_EQ(Csv("path\tlabel\na.jpg\t1\n"), Csv("path,label\na.jpg,1\n"));
  EXPECT_EQ(Csv("\"path;x\",file\nq,a.jpg\n").front(), "2 a.jpg path;x=q:text") << "a comma outside of quotes decides";
  EXPECT_EQ(Describe(Parse(ManifestFormat::kTsv, "path\ta,b\n1;2.jpg\tc,d\n")).front(), "2 1;2.jpg a,b=c,d:text");
}

TEST(Manifest, ColumnsMayBeNamed) {
  const std::string_view csv = "img,target,label\na.jpg,3,x\n";
  EXPECT_EQ(Describe(Parse(ManifestFormat::kCsv, csv, {.path = "img", .label = "target"})).front(),
            "2 a.jpg is 3 label=x:text");
  EXPECT_THAT(Csv(csv).front(), HasSubstr("--path-column"));
  EXPECT_THAT(Describe(Parse(ManifestFormat::kCsv, csv, {.path = "image"})).front(),
              HasSubstr("there is no 'image' among img, target, label"));
  EXPECT_THAT(Describe(Parse(ManifestFormat::kCsv, csv, {.path = "img", .label = "img"})).front(),
              HasSubstr("both the path and the label"));
  const std::string_view json = "{\"img\": \"a.jpg\", \"target\": 3}\n{\"img\": \"b.jpg\"}\n";
  EXPECT_EQ(Describe(Parse(ManifestFormat::kJson, json, {.path = "img", .label = "target"})),
            (std::vector<std::string>{"1 a.jpg is 3", "2 b.jpg"}));
  EXPECT_THAT(Describe(Parse(ManifestFormat::kJson, json, {.path = "img", .label = "targets"})).front(),
              HasSubstr("no line has a member 'targets'"));
  EXPECT_THAT(Describe(Parse(ManifestFormat::kJson, "[\"a.jpg\"]", {.path = "img"})).front(), HasSubstr("an array"));
}

TEST(Manifest, FormatsByName) {
  EXPECT_EQ(ManifestFormatOf("train.tsv"), ManifestFormat::kTsv);
  EXPECT_EQ(ManifestFormatOf("s3://b/train.CSV"), ManifestFormat::kCsv);
  for (const char* name : {"a.jsonl", "a.ndjson", "output.manifest", "a.json"})
    EXPECT_EQ(ManifestFormatOf(name), ManifestFormat::kJson) << name;
  for (const char* name : {"train", "a.csv/", "a.tar", "csv"}) EXPECT_FALSE(ManifestFormatOf(name)) << name;
}

TEST(Manifest, Csv) {
  EXPECT_THAT(Csv("Caption,filename,label,width,score,zip\n"
                  "\"a, b\",x/1.jpg,cat,10,0.50,007\n"
                  ",x/2.jpg,,-5,3,10\n"),
              ElementsAre("2 x/1.jpg is cat Caption=a, b:text score=0.5:float width=10:int zip=007:text",
                          "3 x/2.jpg score=3:float width=-5:int zip=10:text"));
  EXPECT_THAT(Csv("path,file\na.jpg,b\n"), ElementsAre("2 a.jpg file=b:text"));
  EXPECT_THAT(Csv("file,cls,label\na.jpg,3,x\n"), ElementsAre("2 a.jpg is 3 label=x:text"));
  EXPECT_THAT(Csv("path\n"), ElementsAre());
  EXPECT_THAT(Csv(",path,,\n0,a.jpg,x,y\n"), ElementsAre("2 a.jpg")) << "columns without a name are not read";
}

TEST(Manifest, CsvErrorsNameTheLine) {
  EXPECT_THAT(Csv(""), ElementsAre(HasSubstr("it is empty")));
  EXPECT_THAT(Csv("name,label\n"),
              ElementsAre(HasSubstr("line 1: none of the columns (name, label) names the objects")));
  EXPECT_THAT(Csv("path,a,a\n"), ElementsAre(HasSubstr("line 1: column 3: a second one named 'a'")));
  EXPECT_THAT(Csv("path,a\nx.jpg,1\ny.jpg\n"), ElementsAre(HasSubstr("line 3: 1 cells, and the header has 2 columns")));
  EXPECT_THAT(Csv("a,path\n1,\n"), ElementsAre(HasSubstr("line 2: column 2: no path")));
  EXPECT_THAT(Csv("path\n\"x\n"), ElementsAre(HasSubstr("line 2, column 1: a quoted cell that does not end")));
}

TEST(Manifest, JsonLines) {
  EXPECT_THAT(
      JsonOf(R"({"source-ref": "s3://b/1.jpg", "class": "cat", "meta": {"b": [1, 2.5]}, "none": null, "ok": true})"
             "\n\n"
             R"({"path": "2.jpg", "label": "dog", "n": -7, "f": 0.5, "t": "\u00e9"})"),
      ElementsAre("1 s3://b/1.jpg is cat meta={\"b\":[1,2.5]}:json ok=true:json",
                  "3 2.jpg is dog f=0.5:float n=-7:int t=é:text"));
  EXPECT_THAT(JsonOf(R"({"path": "1.jpg", "labels": [1, 0]})"), ElementsAre("1 1.jpg labels=[1,0]:json"));
  // Python writes them like this; a text that says the same stays.
  EXPECT_THAT(JsonOf(R"({"path": "NaN.jpg", "a": NaN, "b": -Infinity, "c": Infinity, "t": "\"NaN"})"),
              ElementsAre("1 NaN.jpg t=\"NaN:text"));
}

TEST(Manifest, JsonErrorsNameTheLine) {
  EXPECT_THAT(JsonOf("{\"path\": \"a.jpg\"}\n{\"path\": \n"), ElementsAre(HasSubstr("line 2: no JSON object")));
  EXPECT_THAT(JsonOf("{\"name\": 1}"), ElementsAre(HasSubstr("line 1: none of its members (name) names an object")));
  EXPECT_THAT(JsonOf("{\"path\": 1}"), ElementsAre(HasSubstr("line 1: none of its members")));
  EXPECT_THAT(JsonOf(R"({"path": "x", "a": 1e400})"), ElementsAre("1 x")) << "no value, as NaN";
  EXPECT_THAT(JsonOf("{\"path\": \"\"}"), ElementsAre(HasSubstr("line 1: an empty path")));
  EXPECT_THAT(JsonOf("{\"path\": \"x\", \"a\": " + std::string(5000, '[') + std::string(5000, ']') + "}"),
              ElementsAre(HasSubstr("line 1: no JSON object")));
  EXPECT_THAT(JsonOf("{\"path\": \"" + std::string(2 << 20, 'x') + "\"}"), ElementsAre(HasSubstr("line 1: more than")));
}

TEST(Manifest, AnnotationsOfCoco) {
  constexpr std::string_view kFile = R"({
    "info": {"images": [{"id": 7}], "year": 2017},
    "images": [{"id": 30, "file_name": "b.jpg", "height": 40, "width": 50, "license": 2},
               {"file_name": "sub/a.jpg", "id": 7}],
    "categories": [{"id": 18, "name": "dog"}],
    "annotations": [
      {"id": 1, "image_id": 30, "category_id": 18, "bbox": [1.5, 2, 3, 4.25], "area": 9.5, "iscrowd": 0,
       "segmentation": [[1, 2, 3, 4], [5, 6]]},
      {"bbox": [0, 0, 10, 20], "category_id": 3, "image_id": 30, "id": 2, "segmentation": {"counts": [1, 2], "size": [3, 4]},
       "iscrowd": 1}]})";
  EXPECT_THAT(JsonOf(kFile), ElementsAre("1 b.jpg area=[9.5,200]:json boxes=[[1.5,2,3,4.25],[0,0,10,20]]:json "
                                         "height=40:int image_id=30:int iscrowd=[0,1]:json labels=[18,3]:json "
                                         "width=50:int",
                                         "2 sub/a.jpg area=[]:json boxes=[]:json image_id=7:int iscrowd=[]:json "
                                         "labels=[]:json"));
  EXPECT_THAT(JsonOf(R"({"annotations": [{"image_id": 1, "id": 5, "caption": "a \"cat\""}],
                         "images": [{"id": 1, "file_name": "a.jpg"}]})"),
              ElementsAre(R"(1 a.jpg captions=["a \"cat\""]:json image_id=1:int)"));
  EXPECT_THAT(JsonOf(R"({"images": [{"id": 1, "file_name": "a.jpg"}], "annotations": []})"), testing::SizeIs(1));
}

TEST(Manifest, AnnotationsOfCocoThatAreWrong) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {R"({"images": [{"id": 1}], "annotations": [{"image_id": 1}]})", "image 1: it has no file_name"},
      {R"({"images": [{"file_name": "a.jpg"}], "annotations": [{"image_id": 1}]})", "image 1: it has no file_name"},
      {R"({"images": [{"id": 1, "file_name": "a.jpg"}, {"id": 1, "file_name": "b.jpg"}], "annotations": [{}]})",
       "image 2: the id 1"},
      {R"({"images": [{"id": 1, "file_name": "a.jpg"}], "annotations": [{"image_id": 2, "category_id": 1,
           "bbox": [1, 2, 3, 4]}]})",
       "annotation 1: there is no image 2"},
      {R"({"images": [{"id": 1, "file_name": "a.jpg"}], "annotations": [{"image_id": 1, "category_id": 1,
           "bbox": [1, 2, 3]}]})",
       "annotation 1: its bbox"},
      {R"({"images": [{"id": 1, "file_name": "a.jpg"}], "annotations": [{"image_id": 1, "bbox": [1, 2, 3, 4]}]})",
       "category_id"},
      {R"({"images": [{"id": 1, "file_name": "a.jpg"}], "annotations": [{"image_id": 1,]})", "malformed JSON"},
  };
  for (const auto& [text, why] : cases) EXPECT_THAT(JsonOf(text), ElementsAre(HasSubstr(why))) << text;
  // These are lines whose members are called so, and not one of COCO's files.
  EXPECT_THAT(JsonOf("{\"path\": \"a.jpg\", \"images\": 3, \"annotations\": [{\"x\": 1}]}\n"),
              ElementsAre("1 a.jpg annotations=[{\"x\":1}]:json images=3:int"));
}

TEST(Manifest, LabelAttributeOfGroundTruth) {
  constexpr std::string_view kRow =
      R"({{"source-ref": "s3://b/{}.jpg", "my-class": {}, "my-class-metadata": {{"class-name": "cat"{}}}}})";
  const std::string typed = R"(, "type": "groundtruth/image-classification")";
  for (const std::string& type : {std::string(), typed}) {
    const Parsed parsed =
        Parse(ManifestFormat::kJson, fmt::format(kRow, 1, 2, type) + "\n" + fmt::format(kRow, 2, 0, type));
    ASSERT_EQ(parsed.manifest.status(), absl::OkStatus());
    EXPECT_TRUE(parsed.manifest->has_labels && parsed.manifest->numeric_labels);
    ASSERT_EQ(parsed.rows.size(), 2u);
    EXPECT_THAT(parsed.rows[0], HasSubstr("1 s3://b/1.jpg is 2 my-class=2:int my-class-metadata={"));
    EXPECT_THAT(parsed.rows[1], HasSubstr("2 s3://b/2.jpg is 0 "));
  }
  EXPECT_THAT(JsonOf(fmt::format(kRow, 1, "\"cat\"", typed)), ElementsAre(HasSubstr(" is cat ")));
  // A label of that name comes first, and what is no class, or may be one of several, is none.
  EXPECT_THAT(JsonOf(R"({"path": "1.jpg", "label": 7, "c": 1, "c-metadata": {}})"), ElementsAre(HasSubstr(" is 7 ")));
  for (const char* none : {
           R"("c": "mask.png", "c-metadata": {})",
           R"("c": {"annotations": []}, "c-metadata": {"type": "groundtruth/object-detection"})",
           R"("c": [1, 2], "c-metadata": {"type": "groundtruth/image-classification-multilabel"})",
           R"("c": 1, "c-metadata": "x")",
           R"("c": 1, "c-metadata": {}, "d": 2, "d-metadata": {})",
       }) {
    const Parsed parsed = Parse(ManifestFormat::kJson, fmt::format(R"({{"path": "1.jpg", {}}})", none));
    ASSERT_EQ(parsed.manifest.status(), absl::OkStatus()) << none;
    EXPECT_FALSE(parsed.manifest->has_labels) << none;
  }
  EXPECT_THAT(JsonOf(R"({"path": "1.jpg", "c": 1, "c-metadata": {}})"
                     "\n"
                     R"({"path": "2.jpg", "d": 1, "d-metadata": {}})"),
              ElementsAre(HasSubstr("line 2: its label attribute is 'd', and that of lines before 'c'")));
}

TEST(Manifest, ArrayOfSageMaker) {
  const Parsed parsed =
      Parse(ManifestFormat::kJson, R"([{"more": [{"prefix": 1}], "prefix": "s3://b/p/"}, "a/1.jpg", "2.jpg"])");
  ASSERT_TRUE(parsed.manifest.ok()) << parsed.manifest.status();
  EXPECT_EQ(parsed.manifest->prefix, "s3://b/p/");
  EXPECT_EQ(parsed.manifest->row_word, "entry");
  EXPECT_THAT(parsed.rows, ElementsAre("1 a/1.jpg", "2 2.jpg"));
  EXPECT_FALSE(parsed.manifest->has_labels);
  for (const char* bad : {"[\"a.jpg\"]", "[]", "[1]", "[[]]", "[{}, \"a.jpg\"]", "[{\"prefix\": 1}]"})
    EXPECT_THAT(JsonOf(bad), ElementsAre(HasSubstr("prefix"))) << bad;
  for (const char* bad : {"1", "\"\"", "{}", "[]", "null"}) {
    EXPECT_THAT(JsonOf(fmt::format("[{{\"prefix\": \"s3://b/\"}}, \"x.jpg\", {}]", bad)),
                ElementsAre(HasSubstr("entry 2 is not the name")))
        << bad;
  }
  for (const char* bad : {"", "]]", ",]", "\xff\"]"}) {
    EXPECT_THAT(JsonOf(fmt::format("[{{\"prefix\": \"s3://b/\"}}, \"x.jpg\"{}", bad)),
                ElementsAre(HasSubstr("malformed JSON")))
        << bad;
  }
  EXPECT_THAT(JsonOf("[{\"prefix\": \"s3://b/\", \"x\": " + std::string(5000, '[')),
              ElementsAre(HasSubstr("no JSON array")));
}

TEST(Manifest, LabelsAreNumbersWhenAllAre) {
  const auto numeric = [](std::vector<std::string> labels) {
    std::string text = "path, label\n";
    for (const std::string& label : labels) text += fmt::format("x.jpg,{}\n", label);
    return Parse(ManifestFormat::kCsv, text).manifest->numeric_labels;
  };
  EXPECT_TRUE(numeric({"0", "1", "2"}));
  EXPECT_TRUE(numeric({"0", "", "1"}));
  EXPECT_TRUE(numeric({"-1", " 10", "2 ", "\t3"}));
  EXPECT_FALSE(numeric({"a", "b", ""}));
  EXPECT_FALSE(numeric({"007", "cat"})) << "a code with zeros in front is a name among names";
  EXPECT_FALSE(numeric({"", " "}));
  EXPECT_THAT(Csv("path,label\na.jpg, 7 \nb.jpg,  \n"), ElementsAre("2 a.jpg is 7", "3 b.jpg"));
}

TEST(Manifest, NamesAmongNumbersAreRefused) {
  const auto wrong = [](std::vector<std::string> labels) {
    std::string text = "key,label\n";
    std::string json;
    for (const std::string& label : labels) {
      text += fmt::format("x,{}\n", label);
      json += fmt::format("{{\"key\": \"x\", \"label\": {}}}\n",
                          label.find_first_not_of("0123456789") == std::string::npos && !label.empty()
                              ? label
                              : fmt::format("\"{}\"", label));
    }
    for (const RowsName rows : {RowsName::kObjects, RowsName::kKeys}) {
      const ManifestColumns columns{.path = "key", .label = "", .rows = rows};
      EXPECT_EQ(Parse(ManifestFormat::kJson, json, columns).manifest.ok(), false) << json;
      const auto parsed = Parse(ManifestFormat::kCsv, text, columns);
      if (parsed.manifest.ok()) return std::string("ok");
      if (rows == RowsName::kKeys) return parsed.manifest.status().ToString();
    }
    return std::string("not reached");
  };
  EXPECT_THAT(wrong({"0", "1", "2", "unknown"}),
              HasSubstr("line 5: the label 'unknown' is no number, and that of line 2 is ('0')"));
  EXPECT_THAT(wrong({"N/A", "1", "2", "?"}), HasSubstr("line 2: the label 'N/A' is no number"));
  EXPECT_THAT(wrong({"", "1", "None", ""}), HasSubstr("line 4: the label 'None' is no number"));
  EXPECT_THAT(wrong({"cat", "dog", "7", "cow"}),
              HasSubstr("line 4: the label '7' is a number, and that of line 2 is a name ('cat')"));
  EXPECT_THAT(wrong({"0.5", "0.25", "unknown"}), HasSubstr("line 4: the label 'unknown' is no number"));
  EXPECT_THAT(wrong({"cat", "nan", "dog"}), HasSubstr("line 3: the label 'nan' is a number"));
}

TEST(Manifest, PaddedNumbersAreNumbersIfTheyAreMany) {
  EXPECT_THAT(Csv("path,label\na,001\nb,002\nc,unknown\n"),
              ElementsAre(HasSubstr("line 4: the label 'unknown' is no number, and that of line 2 is ('001')")));
  EXPECT_THAT(Csv("path,label\na,001\nb,cat\n"), ElementsAre("2 a is 001", "3 b is cat"));
}

// The classes of EMNIST are characters.
TEST(Manifest, QuotedLabelsAreNamesIfOneIsNoNumber) {
  EXPECT_THAT(JsonOf("{\"path\": \"a\", \"label\": \"0\"}\n{\"path\": \"b\", \"label\": \"A\"}"),
              ElementsAre("1 a is 0", "2 b is A"));
  EXPECT_THAT(JsonOf("{\"path\": \"a\", \"label\": 0}\n{\"path\": \"b\", \"label\": \"A\"}"),
              ElementsAre(HasSubstr("line 2: the label 'A' is no number")));
  EXPECT_THAT(Csv("path,label\na,0\nb,A\n"), ElementsAre(HasSubstr("as JSON lines with each label in quotes")));
}

TEST(Manifest, NumbersThatAreNoClassesAreRefused) {
  for (const char* odd : {"00", "007", "1.5", "-0", "+1", "1e3", "nan", "12345678901234567890"}) {
    EXPECT_THAT(Csv(fmt::format("path,label\na.jpg,1\nb.jpg,{}\nc.jpg,2.5\n", odd)),
                ElementsAre(HasSubstr(fmt::format("line 3: the label '{}' is a number, but", odd))));
  }
  EXPECT_THAT(JsonOf("{\"path\": \"a.jpg\", \"cls\": \"1\"}\n{\"path\": \"a.jpg\", \"cls\": \"2.0\"}"),
              ElementsAre(HasSubstr("line 2: the label '2.0'")));
  for (const char* odd : {"1.5", "[1]", "{}"}) {
    EXPECT_THAT(JsonOf(fmt::format("{{\"path\": \"a.jpg\", \"cls\": 1}}\n{{\"path\": \"a.jpg\", \"cls\": {}}}", odd)),
                ElementsAre(HasSubstr(
                    "line 2: the label 'cls' is neither text nor a whole number; if it is not a class, rename")))
        << odd;
  }
  EXPECT_THAT(JsonOf("{\"path\": \"a.jpg\", \"cls\": null}"), ElementsAre("1 a.jpg"));
}

TEST(Manifest, NumbersWithCommasAreNoNames) {
  for (const char* label : {"3,5", "1,000", "-1.000,5", "1,2,3"}) {
    EXPECT_THAT(Csv(fmt::format("path,label\na,\"{}\"\nb,\"{}\"\n", label, label)),
                ElementsAre(HasSubstr(
                    fmt::format("line 2: the label '{}' has a comma: write a number with a decimal point", label))));
    EXPECT_THAT(Csv(fmt::format("path;label\na;5\nb;{}\n", label)), ElementsAre(HasSubstr("line 3: the label")));
  }
  EXPECT_THAT(Csv("path,label\na,\"1,000\"\nb,cat\n"), ElementsAre("2 a is 1,000", "3 b is cat"));
  EXPECT_THAT(Csv("path,label\na,\"1,\"\nb,\"a,1\"\n"), ElementsAre("2 a is 1,", "3 b is a,1"));
  EXPECT_THAT(JsonOf("{\"path\": \"a\", \"label\": \"1,5\"}"), ElementsAre("1 a is 1,5"));
}

TEST(Manifest, WhatPythonsJsonReads) {
  EXPECT_THAT(JsonOf("{\"path\": \"a\", \"label\": true}\n{\"path\": \"b\", \"label\": false}"),
              ElementsAre("1 a is true", "2 b is false"));
  EXPECT_THAT(JsonOf(R"({"path": "a", "t": "\ud83d\ude00 \ud800 \\ud800", "n": 1e400, "m": [-1E999, 1e3, NaN]})"),
              ElementsAre("1 a m=[null,1000.0,null]:json t=\xf0\x9f\x98\x80 \xef\xbf\xbd \\ud800:text"));
}

TEST(Manifest, OneLabelOnly) {
  for (const char* row : {"3,x", "dog,x", "dog,3"}) {
    EXPECT_THAT(Csv(fmt::format("path,CLS,cls\na.jpg,{}\n", row)),
                ElementsAre(HasSubstr("line 1: 'CLS' and 'cls' may both be the label; rename one")));
  }
  EXPECT_THAT(JsonOf("{\"path\": \"a.jpg\"}\n{\"path\": \"a.jpg\", \"Label\": 1, \"label\": 2}"),
              ElementsAre(HasSubstr("line 2: 'Label' and 'label' may both be the label")));
}

TEST(Manifest, BlanksAroundNumbers) {
  EXPECT_THAT(Csv("path, n , x,t\na.jpg, 1, 2.50, a \nb.jpg,  ,3 ,\n"),
              ElementsAre("2 a.jpg n=1:int t= a :text x=2.5:float", "3 b.jpg x=3:float"));
}

TEST(Manifest, NumbersLoseNoDigits) {
  EXPECT_THAT(Csv("path,n\na.jpg,123456789012345678\nb.jpg,0.5\n"),
              ElementsAre("2 a.jpg n=123456789012345678:text", "3 b.jpg n=0.5:text"));
  EXPECT_THAT(Csv("path,n\na.jpg,9007199254740992\nb.jpg,0.5\n"),
              ElementsAre("2 a.jpg n=9007199254740992:float", "3 b.jpg n=0.5:float"));
  EXPECT_THAT(Csv("path,n\na.jpg,-9007199254740993\nb.jpg,0.5\n"),
              ElementsAre("2 a.jpg n=-9007199254740993:text", "3 b.jpg n=0.5:text"));
  EXPECT_THAT(JsonOf("{\"path\": \"a.jpg\", \"n\": 123456789012345680.0}"),
              ElementsAre("1 a.jpg n=123456789012345680:float"));
}

TEST(Manifest, TextIsUtf8) {
  EXPECT_THAT(Csv("path,t,n\na.jpg,x,1\nb.jpg,caf\xe9,2\n"),
              ElementsAre(HasSubstr("line 3: column 2: no UTF-8 text; save the manifest as UTF-8")));
  EXPECT_THAT(Csv("path,label\nb.jpg,caf\xe9\n"), ElementsAre(HasSubstr("line 2: column 2: no UTF-8 text")));
  EXPECT_THAT(Csv("path,caf\xe9\n"), ElementsAre(HasSubstr("line 1: column 2: no UTF-8 text")));
  EXPECT_THAT(Csv("path\ncaf\xe9.jpg\n"), ElementsAre("2 caf\xe9.jpg")) << "names are bytes";
  EXPECT_THAT(JsonOf("{\"path\": \"a.jpg\", \"t\": \"caf\xe9\"}"),
              ElementsAre(HasSubstr("line 1: no JSON object (in UTF-8)")));
}

}  // namespace
}  // namespace millrace
