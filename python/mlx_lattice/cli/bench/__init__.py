"""`mlx-lattice bench`: measures operations on this machine. One module per topic."""

from . import codec, conv, model, train


def add_command(commands):
    parser = commands.add_parser("bench", help="measures operations on this machine")
    topics = parser.add_subparsers(dest="topic", required=True, metavar="topic")
    for topic in (conv, codec, model, train):
        topic.add_topics(topics)
