// The text of the Metal kernels is in the library, whole and without includes of ours.
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "lattice/kernels/metal/text.h"

TEST(MetalText, every_topic_is_complete) {
  for (const lattice::metal::Text& entry : lattice::metal::texts()) {
    EXPECT_FALSE(entry.topic.empty());
    EXPECT_EQ(&lattice::metal::text(entry.topic), &entry);
    for (const std::string_view text : {entry.metal, entry.cuda}) {
      EXPECT_EQ(text.find("#include \"lattice/"), std::string_view::npos) << entry.topic;
      EXPECT_EQ(text.find("#pragma once"), std::string_view::npos) << entry.topic;
      EXPECT_EQ(text.back(), '\n') << entry.topic;
    }
  }
}

// The text for CUDA has a prelude and its own tiles; no header of Metal is left.
TEST(MetalText, cuda_has_its_own_words) {
  const lattice::metal::Text& conv = lattice::metal::text("conv");
  EXPECT_NE(conv.cuda.find("LATTICE_PLACE"), std::string_view::npos);
  EXPECT_NE(conv.cuda.find("mma.sync"), std::string_view::npos);
  EXPECT_EQ(conv.cuda.find("simdgroup_load"), std::string_view::npos);
  EXPECT_EQ(conv.cuda.find("<metal_"), std::string_view::npos);
  EXPECT_EQ(conv.metal.find("mma.sync"), std::string_view::npos);
}

TEST(MetalText, unknown_topic) {
  EXPECT_THROW(lattice::metal::text("no_such_topic"), std::invalid_argument);
}
