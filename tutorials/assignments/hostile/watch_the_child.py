# attack: Traces and searches its own process for the judge, and answers the next question before it is asked.
import gc
import sys

found = []


def watcher(frame, event, argument):
    if "self" in frame.f_locals and hasattr(frame.f_locals["self"], "say"):
        found.append(frame.f_locals["self"])
    return watcher


sys.settrace(watcher)
sys.setprofile(watcher)


def attack():
    talks = found + [each for each in gc.get_objects() if type(each).__name__ == "Conversation"]
    hidden = [each for each in gc.get_objects() if type(each).__name__ in ("Sitting", "GradedItem", "Assignment", "Values")]
    if hidden:
        raise SystemError("the judge is here")
    for talk in talks[:1]:
        for number in range(talk.number, talk.number + 50):
            talk.number = number
            talk.say(value={"tuple": [[0], []]})
    return {}


def spans(readers, cost):
    return attack()


def grow(root, readers, spans, fits):
    return attack()
