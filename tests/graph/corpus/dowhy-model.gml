graph [
  directed 1
  node [
    id 0
    label "v0"
    observed "yes"
    penwidth 2
  ]
  node [
    id 1
    label "y"
    observed "yes"
    penwidth 2
  ]
  node [
    id 2
    label "W0"
    observed "yes"
  ]
  node [
    id 3
    label "W1"
    observed "yes"
  ]
  node [
    id 4
    label "Z0"
    observed "yes"
  ]
  edge [
    source 0
    target 1
    penwidth 2
  ]
  edge [
    source 2
    target 0
  ]
  edge [
    source 2
    target 1
  ]
  edge [
    source 3
    target 0
  ]
  edge [
    source 3
    target 1
  ]
  edge [
    source 4
    target 0
  ]
]
