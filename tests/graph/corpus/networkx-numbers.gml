graph [
  directed 1
  node [
    id 0
    label "0"
    name "age"
  ]
  node [
    id 1
    label "1"
    name "marital-status"
  ]
  node [
    id 2
    label "2"
    name "gr&#246;&#223;e &#34;x&#34;"
  ]
  node [
    id 3
    label "3"
    name "alone"
  ]
  node [
    id 4
    label "4"
    observed "no"
    name "U"
  ]
  edge [
    source 0
    target 1
  ]
  edge [
    source 1
    target 2
  ]
  edge [
    source 4
    target 0
  ]
  edge [
    source 4
    target 3
  ]
]
