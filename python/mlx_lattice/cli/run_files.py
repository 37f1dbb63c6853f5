"""Names of the files in a folder that `train` writes."""

MODEL = "model.safetensors"  # the network of the best epoch
PIPELINE = "recipe.json"  # how clouds become voxels: a VoxelPipeline
RECIPE = "recipe.toml"  # of `train --recipe`: everything but the data
HISTORY = "history.csv"  # one row per epoch
