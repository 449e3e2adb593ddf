"""A small table of two holders, and what is public about it."""

from fedfdp.data.schema import Facts

CSV = "site,age,sex,stay,back\nnorth,20,f,1.5,no\nnorth,110,m,0,yes\nsouth,65,m,60,no\n"


def facts(**changes):
    """What is public about CSV."""
    given = {
        "holder": "site",
        "label": "back",
        "classes": ("no", "yes"),
        "columns": {"age": [0, 110], "stay": [0, 60], "sex": ["f", "m"]},
    }
    return Facts(**{**given, **changes})
