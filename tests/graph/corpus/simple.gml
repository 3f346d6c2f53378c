graph[
    directed 1
    node[ id "Z" label "Z"]
    node[ id "X" label "X"]
    node[ id "Y" label "Y"]
    edge[source "Z" target "X"]
    edge[source "Z" target "Y"]
    edge[source "X" target "Y"]
]
